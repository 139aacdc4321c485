"""Digests of the code that a suite is made of, from the files below its root.

A Python module counts with all that it imports, a command with the files among its words. What is
installed, and Python's own library, do not count. Files are read once.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.errors import EvalError
from evalcore.model.code_names import COMMAND, FILE, PYTHON
from evalcore.trust.files import repository_root, resolve_inside

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_READ_BYTES: Final = 64 << 20
_TEXT_BYTES: Final = 1 << 20
_SHELL_WORDS: Final = re.compile(r"[^\s;|&<>()'\"`=,]+")
# Where a shell text writes to is what a run leaves, not what the command is made of.
_SHELL_OUTPUT: Final = re.compile(
    r"""(?:[&\d]?>{1,2}\|?[ \t]*|(?<![\w./-])tee[ \t]+(?:-\w+[ \t]+)*)"""
    r"""(?:"(?=\S)[^"\n]*"|'(?=\S)[^'\n]*'|[^\s;|&<>()'"`]+)"""
)
_MODULE: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_SCRIPTS: Final = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_SCRIPT_IMPORT: Final = re.compile(
    rb"""(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*['"](\.{1,2}/[^'"\n]+)['"]"""
)
_MOST_WORDS: Final = 2_000


class CodeDigests:
    """The digests of a suite's code; for one plan, in which no file changes."""

    def __init__(self, folder: Path, current: Path | None = None) -> None:
        """Take the suite's folder and the current one, below which modules are looked for.

        Files count below these and below the folder's repository.
        """
        roots = [folder.resolve(), (current or Path.cwd()).resolve()]
        self._folder = roots[0]
        self._roots = tuple(dict.fromkeys(roots))
        self._bounds = tuple(dict.fromkeys([repository_root(folder), *roots]))
        self._counted: dict[Path, Path | None] = {}
        self._contents: dict[Path, bytes] = {}
        self._imports: dict[tuple[Path, str], tuple[frozenset[str], tuple[str, ...]]] = {}
        self._files: dict[tuple[str, tuple[Path, ...]], tuple[Path, ...]] = {}
        self._members: dict[tuple[Path, str], tuple[Path | None, bool]] = {}
        self._installed_folders: dict[str, Path | None] = {}

    def digests(self, names: Iterable[str]) -> dict[str, str]:
        """Return the digest (hex) of each name that has code below the root."""
        digested = {name: self.digest(name) for name in sorted(set(names))}
        return {name: digest for name, digest in digested.items() if digest is not None}

    def digest(self, name: str) -> str | None:
        """Return the digest of a name of `model.code_names`; None if no file of it counts."""
        return self._digest(self.files(name))

    def files(self, name: str) -> set[Path]:
        """Return the files that count as a name of `model.code_names`."""
        if name.startswith(PYTHON):
            module = name.removeprefix(PYTHON)
            return self._closure(self._module(module, self._roots), self._roots)
        if name.startswith(COMMAND):
            return self._command(orjson.loads(name.removeprefix(COMMAND)))
        return self._file(name.removeprefix(FILE))

    def digest_of_file(self, path: Path) -> str | None:
        """Return the digest of a Python file with what it imports."""
        return self._digest(self._program(path.resolve(), self._folder))

    def _digest(self, files: Iterable[Path]) -> str | None:
        """Return a digest of files: their names within the bounds, and what they hold."""
        described = {self._relative_name(path): self._content(path).hex() for path in files}
        if not described:
            return None
        return hashlib.sha256(orjson.dumps(sorted(described.items()))).hexdigest()

    def _relative_name(self, path: Path) -> str:
        bound = next(bound for bound in self._bounds if path.is_relative_to(bound))
        return path.relative_to(bound).as_posix()

    def _content(self, path: Path) -> bytes:
        """Return the SHA-256 of a file; of one beyond 64 MiB of its size and time."""
        digest = self._contents.get(path)
        if digest is None:
            try:
                status = path.stat()
                if status.st_size > _READ_BYTES:
                    data = b"%d %d" % (status.st_size, status.st_mtime_ns)
                else:
                    data = path.read_bytes()
            except OSError:
                data = b""
            digest = self._contents[path] = hashlib.sha256(data).digest()
        return digest

    def _counts(self, path: Path) -> Path | None:
        """Return the resolved path if it is a file below the bounds that is not installed."""
        if path not in self._counted:
            self._counted[path] = self._resolved(path)
        return self._counted[path]

    def _resolved(self, path: Path) -> Path | None:
        try:
            if not path.is_file():
                return None
            resolved = path.resolve()
        except (OSError, ValueError):  # a name that no file system takes
            return None
        bound = next((bound for bound in self._bounds if resolved.is_relative_to(bound)), None)
        if bound is None or not _INSTALLED.isdisjoint(resolved.relative_to(bound).parts):
            return None
        return resolved

    def _file(self, name: str) -> set[Path]:
        """Return an attached file, or a plug-in's program with what it imports."""
        path = Path(name.removeprefix("file://"))
        if not path.is_absolute():
            try:
                path = resolve_inside(repository_root(self._folder), self._folder, str(path))
            except (EvalError, ValueError):
                return set()
        counted = self._counts(path)
        return set() if counted is None else self._program(counted, self._folder)

    # Python

    def _module(self, name: str, folders: tuple[Path, ...]) -> tuple[Path, ...]:
        """Return the files of a module and of its packages."""
        key = (name, folders)
        if key not in self._files:
            self._files[key] = self._looked_up(name, folders)
        return self._files[key]

    def _looked_up(self, name: str, folders: tuple[Path, ...]) -> tuple[Path, ...]:
        parts = name.split(".")
        # The engine's own modules are no part of a suite.
        if parts[0] == "evalcore" or not _MODULE.fullmatch(name):
            return ()
        for folder in folders:
            files = tuple(self._below(folder, parts))
            if files:
                return files
        if parts[0] in sys.stdlib_module_names:
            return ()
        installed = self._installed_folder(parts[0])
        return () if installed is None else tuple(self._below(installed, parts))

    def _below(self, folder: Path, parts: list[str]) -> Iterator[Path]:
        for part in parts:
            counted, leads_on = self._member(folder, part)
            if counted is not None:
                yield counted
            if not leads_on:
                return
            folder = folder / part

    def _member(self, folder: Path, name: str) -> tuple[Path | None, bool]:
        """Return the file of a package or module in a folder, and whether more can be below it."""
        key = (folder, name)
        if key not in self._members:
            package = self._counts(folder / name / "__init__.py")
            module = None if package is not None else self._counts(folder / f"{name}.py")
            leads_on = package is not None or (module is None and (folder / name).is_dir())
            self._members[key] = (package or module, leads_on)
        return self._members[key]

    def _installed_folder(self, top: str) -> Path | None:
        """Return the folder in which Python would find a module; None if it is nowhere."""
        if top not in self._installed_folders:
            self._installed_folders[top] = _installed_folder_of(top)
        return self._installed_folders[top]

    def _closure(self, files: Iterable[Path], folders: tuple[Path, ...]) -> set[Path]:
        """Return Python files with all that they import from below the bounds."""
        closed: set[Path] = set()
        open_files = list(files)
        while open_files:
            path = open_files.pop()
            if path in closed:
                continue
            closed.add(path)
            names, entries = self._imported(path, folders)
            # What a file puts on `sys.path` holds for what is imported after it as well.
            added = (_folder_at(path.parent, entry) for entry in entries)
            inside = [path for path in added if path is not None and self._is_inside(path)]
            folders = tuple(dict.fromkeys([*folders, *inside]))
            for name in names:
                open_files.extend(self._module(name, folders))
        return closed

    def _imported(
        self, path: Path, folders: tuple[Path, ...]
    ) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the names that a file imports, and what it puts on `sys.path`."""
        package = _package_of(path, folders)
        key = (path, package)
        if key not in self._imports:
            from evalcore.trust.imported_names import imported_names, path_entries

            source = _text(path)
            self._imports[key] = (imported_names(source, package), path_entries(source))
        return self._imports[key]

    # Programs

    def _command(self, named: dict[str, Any]) -> set[Path]:
        cwd = self._folder / named.get("cwd", "")
        return self._named_by(named["words"], [cwd, self._folder], depth=0)

    def _named_by(self, words: Iterable[str], folders: list[Path], depth: int) -> set[Path]:
        """Return the files among words, looked for in the folders, with what they import."""
        candidates = list(_candidates(words))[:_MOST_WORDS]
        folders = list(dict.fromkeys(folders))
        # `cd there && python x.py`
        for word in candidates:
            inner = _folder_at(folders[0], word)
            if inner is not None and self._is_inside(inner) and inner not in folders:
                folders.append(inner)
        files: set[Path] = set()
        for word, after in zip(candidates, [*candidates[1:], ""], strict=True):
            files |= self._word(word, after, folders, depth)
        return files

    def _word(self, word: str, after: str, folders: list[Path], depth: int) -> set[Path]:
        if word == "-m" and _MODULE.fullmatch(after):
            searched = tuple(folders)
            modules = [*self._module(after, searched), *self._module(f"{after}.__main__", searched)]
            return self._closure(modules, searched)
        if word.startswith("-") or "\0" in word:
            return set()
        for folder in folders:
            counted = self._counts(folder / word)
            if counted is not None:
                return self._program(counted, *folders, depth=depth)
        return self._inline(word, tuple(folders)) if "import" in word else set()

    def _inline(self, text: str, folders: tuple[Path, ...]) -> set[Path]:
        """Return what a Python text imports that stands in a command: `python -c "import x"`."""
        from evalcore.trust.imported_names import imported_names

        names = imported_names(text.encode("utf-8", "replace"))
        return self._closure(
            (path for module in names for path in self._module(module, folders)), folders
        )

    def _program(self, path: Path, *folders: Path, depth: int = 0) -> set[Path]:
        """Return a file with what it imports, or names if it is a shell script."""
        kind = _kind_of(path)
        if kind == "python":
            searched = tuple(dict.fromkeys([_top_of(path), path.parent, *folders, *self._roots]))
            return self._closure([path], searched)
        if kind == "script":
            return self._scripts(path)
        if kind == "shell" and depth < 3:
            text = _text(path).decode("utf-8", "replace")
            return {path} | self._named_by([text], [*folders, path.parent], depth + 1)
        return {path}

    def _scripts(self, path: Path) -> set[Path]:
        """Return a JavaScript or TypeScript file with what it imports by relative paths."""
        closed: set[Path] = set()
        open_files = [path]
        while open_files:
            current = open_files.pop()
            if current in closed:
                continue
            closed.add(current)
            for match in _SCRIPT_IMPORT.finditer(_text(current)):
                target = current.parent / match[1].decode("utf-8", "replace")
                files = (self._counts(file) for file in _script_files(target))
                open_files.extend(file for file in files if file is not None)
        return closed

    def _is_inside(self, folder: Path) -> bool:
        return any(folder.is_relative_to(bound) for bound in self._bounds)


def _candidates(words: Iterable[str]) -> Iterator[str]:
    """Yield words and those within them: of a shell text, of `--file=x`, of `x.py::test`."""
    for word in words:
        yield word
        inner = _SHELL_WORDS.findall(_SHELL_OUTPUT.sub(" ", word))
        if inner == [word]:
            inner = []
        elif " " in word:
            with suppress(ValueError):  # a quotation mark without its second
                parts = shlex.split(_SHELL_OUTPUT.sub(" ", word))
                inner += [part for part in parts if " " in part]
        for part in [word, *inner]:
            if "::" in part:
                yield part.partition("::")[0]
        yield from inner


def _folder_at(folder: Path, word: str) -> Path | None:
    try:
        return (folder / word).resolve() if (folder / word).is_dir() else None
    except (OSError, ValueError):
        return None


def _installed_folder_of(top: str) -> Path | None:
    from importlib.util import find_spec

    try:
        spec = find_spec(top)
    except Exception:  # noqa: BLE001 - a foreign import hook, or a module without a spec
        return None
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    if folders:
        return Path(folders[0]).parent
    origin = None if spec is None else spec.origin
    return Path(origin).parent if origin is not None and origin.endswith(".py") else None


def _kind_of(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in {".py", ".pyw"}:
        return "python"
    if suffix in _SCRIPTS:
        return "script"
    if suffix in {".sh", ".bash", ".zsh"}:
        return "shell"
    if suffix:
        return "data"
    first = _text(path, 256).partition(b"\n")[0]
    if not first.startswith(b"#!"):
        return "data"
    if b"python" in first:
        return "python"
    return "shell" if first.rstrip().endswith((b"sh", b"sh -e", b"sh -eu")) else "data"


def _text(path: Path, limit: int = _TEXT_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError:
        return b""


def _top_of(path: Path) -> Path:
    """Return the folder that a file's outermost package stands in."""
    folder = path.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def _package_of(path: Path, folders: tuple[Path, ...]) -> str:
    """Return the package that a file's relative imports start from, as the folders name it."""
    top = _top_of(path)
    # A namespace package has no `__init__`: the innermost folder above it names it.
    above = [folder for folder in folders if top.is_relative_to(folder)]
    base = max(above, key=lambda folder: len(folder.parts), default=top)
    return ".".join(path.parent.relative_to(base).parts)


def _script_files(target: Path) -> Iterator[Path]:
    yield target
    for suffix in _SCRIPTS:
        yield target.with_name(target.name + suffix)
        yield target.with_suffix(suffix)
        yield target / f"index{suffix}"
