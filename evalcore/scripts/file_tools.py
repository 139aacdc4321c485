"""Tools that read and write files below the suite's repository."""

from __future__ import annotations

import mimetypes
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from evalcore.errors import EvalError
from evalcore.patterns.bounded import compile_python
from evalcore.patterns.errors import PatternError
from evalcore.scripts.failure import ToolError
from evalcore.scripts.iteration import Iteration, Scope, WaitingTool
from evalcore.scripts.tool_parameters import ToolParameter, checked_input, json_schema
from evalcore.trust.files import place_inside

_LARGEST_FILE: Final = 8 << 20
_MOST_FILES: Final = 10_000
_SEARCH_LIMIT_S: Final = 2.0
_GLOB: Final = frozenset("*?[]")


def _path_of(folder: Path, name: str) -> Path:
    """Return the path of a file; raise `ToolError` outside the repository or in hidden folders."""
    try:
        path = place_inside(folder, name, "file")
    except EvalError as error:
        raise ToolError("PermissionError", str(error)) from error
    if _is_hidden(Path(name)):
        raise ToolError("PermissionError", f"'{name}' is hidden")
    return path


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") and part not in {".", ".."} for part in path.parts)


def _text(path: Path, name: str) -> str:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ToolError("ValueError", f"'{name}' is larger than {_LARGEST_FILE >> 20} MiB")
        return path.read_text("utf-8", "replace")
    except OSError as error:
        raise ToolError(type(error).__name__, f"cannot read '{name}': {error.strerror}") from error


def _write(path: Path, name: str, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ToolError(type(error).__name__, f"cannot write '{name}': {error.strerror}") from error


def _read_file(folder: Path, path: str, lines: int, offset: int, show_line_numbers: bool) -> str:
    """Return lines of a file; a negative offset counts from its end."""
    content = _text(_path_of(folder, path), path).splitlines(keepends=True)
    start = offset if offset >= 0 else max(0, len(content) + offset)
    chosen = content[start : start + lines]
    if not show_line_numbers:
        return "".join(chosen)
    numbered = enumerate(chosen, start + 1)
    return "\n".join(f"{number}: {line.rstrip(chr(10))}" for number, line in numbered)


def _write_file(folder: Path, path: str, content: str, if_exists: str) -> None:
    file = _path_of(folder, path)
    if if_exists == "fail" and file.exists():
        raise ToolError("FileExistsError", f"'{path}' exists already")
    before = _text(file, path) if if_exists == "append" and file.exists() else ""
    _write(file, path, before + content)


def _edit_file(
    folder: Path, path: str, old_string: str, new_string: str, replace_all: bool, expected: Any
) -> dict[str, int]:
    file = _path_of(folder, path)
    content = _text(file, path)
    count = content.count(old_string) if old_string else 0
    if count == 0:
        raise ToolError("ValueError", f"old_string does not stand in '{path}'")
    if count > 1 and not replace_all:
        message = f"old_string stands {count} times in '{path}'; set replace_all"
        raise ToolError("ValueError", message)
    if expected is not None and expected != count:
        raise ToolError("ValueError", f"expected {expected} replacements, there are {count}")
    _write(file, path, content.replace(old_string, new_string))
    return {"replacements": count}


def _files(folder: Path, pattern: str, *, hidden: bool = False) -> Iterator[tuple[str, Path]]:
    """Yield the files that a pattern names, as they are written and where they are, in order.

    Links that lead outside of the repository are passed over.
    """
    if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise ToolError("PermissionError", f"'{pattern}' is no pattern below the suite's folder")
    try:
        matches = sorted(islice(folder.glob(pattern), _MOST_FILES))
    except (ValueError, OSError, NotImplementedError) as error:
        raise ToolError("ValueError", f"'{pattern}' is no pattern of files: {error}") from error
    for path in matches:
        name = path.relative_to(folder)
        if not hidden and _is_hidden(name):
            continue
        with suppress(EvalError):
            if place_inside(folder, name.as_posix(), "file").is_file():
                yield name.as_posix(), path


def _glob_files(
    folder: Path, pattern: str, path: str, max_results: int, include_hidden: bool
) -> list[str]:
    """Return the files that a pattern names, the newest first."""
    written = pattern if path == "." else f"{path.rstrip('/')}/{pattern}"
    files = _files(folder, written, hidden=include_hidden)
    entries = [(name, file.stat().st_mtime) for name, file in files]
    newest = sorted(entries, key=lambda entry: (-entry[1], entry[0]))
    return [name for name, _ in newest[:max_results]]


class _Search(NamedTuple):
    """What is looked for in files, and how much around it is shown."""

    pattern: str
    before: int
    after: int
    ignore_case: bool
    most: int
    mode: str


def _grep_files(folder: Path, pattern: str, files_glob: str, *options: Any) -> dict[str, Any]:
    search = _Search(pattern, *options)
    try:
        compiled = compile_python(pattern, "i" if search.ignore_case else "")
        if not _GLOB.isdisjoint(files_glob):
            files = list(_files(folder, files_glob))
        elif _path_of(folder, files_glob).is_dir():
            files = list(_files(folder, f"{files_glob.rstrip('/')}/**/*"))
        else:
            files = [(files_glob, _path_of(folder, files_glob))]
        matches: list[dict[str, Any]] = []
        for name, path in files:
            lines = _text(path, name).splitlines()
            matches += [
                _match(name, lines, index, search)
                for index, line in enumerate(lines)
                if compiled.is_found_in(line, _SEARCH_LIMIT_S)
            ]
    except PatternError as error:
        raise ToolError("ValueError", str(error)) from error
    result: dict[str, Any] = {"total_matches": len(matches), "files_searched": len(files)}
    names = list(dict.fromkeys(match["file"] for match in matches))
    if search.mode == "files_only":
        return {**result, "files": names[: search.most]}
    if search.mode == "count":
        return {**result, "files_with_matches": len(names)}
    return {**result, "matches": matches[: search.most]}


def _match(name: str, lines: list[str], index: int, search: _Search) -> dict[str, Any]:
    match: dict[str, Any] = {"file": name, "line_number": index + 1, "content": lines[index]}
    if search.before > 0:
        match["context_before"] = lines[max(0, index - search.before) : index]
    if search.after > 0:
        match["context_after"] = lines[index + 1 : index + 1 + search.after]
    return match


def _file_info(folder: Path, path: str) -> dict[str, Any]:
    file = _path_of(folder, path)
    if not file.exists():
        return {"exists": False}
    entry = file.stat()
    kind = "directory" if stat.S_ISDIR(entry.st_mode) else "file"
    info: dict[str, Any] = {
        "exists": True,
        "type": kind,
        "size": entry.st_size,
        "permissions": stat.filemode(entry.st_mode)[1:],
        "modified": datetime.fromtimestamp(entry.st_mtime).isoformat(),
    }
    if kind == "file":
        info["mime_type"] = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return info


def _list_files(folder: Path, path: str) -> str:
    file = _path_of(folder, path)
    if not file.is_dir():
        raise ToolError("NotADirectoryError", f"'{path}' is no folder")
    entries = [entry for entry in file.iterdir() if not _is_hidden(Path(entry.name))]

    def listed(title: str, names: Iterable[str]) -> str:
        ordered = sorted(names)
        return "\n".join(
            [title, *(f"- {name}" for name in ordered), f"total {len(ordered)} entries"]
        )

    files = listed("files:", (entry.name for entry in entries if not entry.is_dir()))
    return f"{files}\n\n{listed('dirs:', (entry.name for entry in entries if entry.is_dir()))}"


class _Function(NamedTuple):
    """What a tool does, and the parameters of a call: name → type and perhaps a default."""

    description: str
    run: Callable[..., Any]
    parameters: Mapping[str, tuple[Any, ...]]
    writes: bool = False


_PATH: Final = ("str",)
_FUNCTIONS: Final[Mapping[str, _Function]] = MappingProxyType(
    {
        "read_file": _Function(
            "Reads lines of a file.",
            _read_file,
            {"path": _PATH, "lines": ("int",), "offset": ("int", 0),
             "show_line_numbers": ("bool", False)},
        ),
        "write_file": _Function(
            "Writes a file.",
            _write_file,
            {"path": _PATH, "content": ("str",),
             "if_exists": ("literal:fail|append|overwrite", "fail")},
            writes=True,
        ),
        "edit_file": _Function(
            "Replaces text in a file.",
            _edit_file,
            {"path": _PATH, "old_string": ("str",), "new_string": ("str",),
             "replace_all": ("bool", False), "expected_count": ("int", None)},
            writes=True,
        ),
        "glob_files": _Function(
            "Finds files by a pattern.",
            _glob_files,
            {"pattern": ("str",), "path": ("str", "."), "max_results": ("int", 100),
             "include_hidden": ("bool", False)},
        ),
        "grep_files": _Function(
            "Finds lines by a regular expression.",
            _grep_files,
            {"pattern": ("str",), "files_glob": ("str",), "lines_before": ("int", 0),
             "lines_after": ("int", 0), "case_insensitive": ("bool", False),
             "max_results": ("int", 50),
             "output_mode": ("literal:content|files_only|count", "content")},
        ),
        "file_info": _Function("Describes a file or folder.", _file_info, {"path": _PATH}),
        "list_files": _Function("Lists a folder.", _list_files, {"path": ("str", ".")}),
    }
)  # fmt: skip
FILES: Final = tuple(_FUNCTIONS)


class FileTool(WaitingTool):
    """Reads or writes below the repository of the suite; names are relative to its folder."""

    def __init__(self, name: str, kind: str) -> None:
        """Take one of `FILES`."""
        self.name = name
        self._function = _FUNCTIONS[kind]
        self.description = self._function.description
        self._parameters = tuple(
            ToolParameter(name=key, type=kinds[0], **({"default": kinds[1]} if kinds[1:] else {}))
            for key, kinds in self._function.parameters.items()
        )

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return tuple(parameter.name for parameter in self._parameters)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        return json_schema(self._parameters)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return what the tool does; raise `ToolError`, or `NotAllowedError` for writing."""
        if self._function.writes:
            run.imports.check_command(f"tool '{self.name}'")
        values = checked_input(self.name, self._parameters, params)
        return self._function.run(run.folder, *values.values())
