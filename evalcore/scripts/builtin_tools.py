"""Tools that come with the project, and the names by which other programs know them."""

from __future__ import annotations

import mimetypes
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from inspect import isawaitable, signature
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import urljoin, urlsplit

from evalcore.errors import EvalError
from evalcore.model.exchange import Endpoint, ProviderError, Request
from evalcore.patterns import PatternError, compile_pattern
from evalcore.scripts.iteration import Iteration, Scope, Tool, ToolError
from evalcore.scripts.models import ModelTool
from evalcore.scripts.parameters import ToolParameter, checked_input, json_schema
from evalcore.shapes import snake_case
from evalcore.trust.files import place_inside

FETCH: Final = ("fetch_content", "fetch_page_text", "fetch_page_markdown", "fetch_page_links")
_FETCH_PARAMETERS: Final = ("url", "xpath", "headers", "on_no_content", "on_error")
_AGENT: Final = "Mozilla/5.0 (compatible; evalcore)"
_HIDDEN: Final = frozenset({"script", "style", "noscript", "template", "head"})
_MARKS: Final = {"li": "* ", **{f"h{level}": f"{'#' * level} " for level in range(1, 7)}}
_BLOCKS: Final = re.compile(
    "address|article|aside|blockquote|br|d[dlt]|div|footer|form|h[1-6r]|header|li|main|nav|[ou]l|p|pre"
    "|section|table|t[dhr]"
)


class FetchTool(Tool):
    """Fetches `url` by GET; like any call it is limited, recorded and replayed."""

    def __init__(self, name: str, kind: str, config: Mapping[str, Any]) -> None:
        """Take one of `FETCH`, and what a call need not say."""
        self.name = name
        self._kind = kind
        self._config = dict(config)

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return _FETCH_PARAMETERS

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return the page's text, Markdown, links or source."""
        options = {**self._config, **params}
        run.warn_of_unknown(self.name, options, _FETCH_PARAMETERS)
        url = params.get("url")
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
            raise ToolError("ValueError", f"{self.name}: 'url' is no web address: {url!r}")
        try:
            text = await self._text(url, options, run)
        except ProviderError as error:
            if error.status == 404:
                return self._instead(options, "on_no_content", f"there is nothing at {url}")
            if options.get("on_error", "raise_exception") == "raise_exception":
                raise
            return self._instead(options, "on_error", f"{url}: {error}")
        xpath = options.get("xpath")
        if self._kind == "fetch_content":
            return text
        elements = self._elements(text, xpath)
        if not elements:
            message = f"nothing at {url} matches '{xpath}'"
            return self._instead(options, "on_no_content", message)
        if self._kind == "fetch_page_links":
            return [link for each in elements for link in _links(each, url)]
        markdown = self._kind == "fetch_page_markdown"
        return "\n".join(_text_of(each, markdown=markdown) for each in elements)

    def _elements(self, text: str, xpath: Any) -> list[Any]:
        from lxml.etree import XPathError

        page = _page_of(text)
        try:
            found = page.xpath(str(xpath)) if xpath else [page]
        except XPathError as error:
            raise ToolError("ValueError", f"{self.name}: the xpath '{xpath}': {error}") from None
        return [each for each in found if hasattr(each, "tag")] if isinstance(found, list) else []

    async def _text(self, url: str, options: Mapping[str, Any], run: Iteration) -> str:
        headers = {"User-Agent": _AGENT, **dict(options.get("headers") or {})}
        parts = urlsplit(url)
        endpoint = Endpoint("http", "fetch", f"{parts.scheme}://{parts.netloc}")
        parameters = {"method": "GET", "url": url, "headers": headers}
        reply = await run.complete(Request(endpoint=endpoint, parameters=parameters))
        return reply.text

    def _instead(self, options: Mapping[str, Any], option: str, message: str) -> Any:
        chosen = options.get(option, "return_empty")
        if chosen == "return_empty":
            return [] if self._kind == "fetch_page_links" else ""
        kind = "ToolException" if chosen == "return_error" else "ValueError"
        raise ToolError(kind, f"{self.name}: {message}")


def _page_of(text: str) -> Any:
    """Return the root element of a page."""
    import lxml.html

    parser = lxml.html.HTMLParser(encoding="utf-8")
    data = text.encode("utf-8", "replace") if text.strip() else b"<html></html>"
    return lxml.html.document_fromstring(data, parser=parser)


def _links(element: Any, url: str) -> Iterator[dict[str, str | None]]:
    for each in element.iter("a"):
        link = urljoin(url, each.get("href") or "")
        if each.get("href") and urlsplit(link).scheme in ("http", "https"):
            yield {"link": link, "text": _line_of(each) or None}


def _line_of(element: Any) -> str:
    return " ".join(_text_of(element, markdown=False).split())


def _text_of(element: Any, *, markdown: bool) -> str:
    """Return the visible text of an element, a line for each block."""
    text = "".join(_pieces(element, markdown=markdown))
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _pieces(element: Any, *, markdown: bool) -> Iterator[str]:
    tag = element.tag
    if not isinstance(tag, str) or tag in _HIDDEN:  # a comment has no name
        return
    if markdown and tag == "a" and element.get("href"):
        yield f"[{_line_of(element)}]({element.get('href')})"
        return
    around = "\n" if _BLOCKS.fullmatch(tag) else ""
    yield around + (_MARKS.get(tag, "") if markdown else "")
    yield _shown(element.text, markdown=markdown)
    for child in element:
        yield from _pieces(child, markdown=markdown)
        yield _shown(child.tail, markdown=markdown)
    yield around


def _shown(text: str | None, *, markdown: bool) -> str:
    return (text or "").replace("\n", " ") if markdown else text or ""


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


def read_file(
    folder: Path, path: str, lines: int, offset: int = 0, show_line_numbers: bool = False
) -> str:
    """Return lines of a file; a negative offset counts from its end."""
    content = _text(_path_of(folder, path), path).splitlines(keepends=True)
    start = offset if offset >= 0 else max(0, len(content) + offset)
    chosen = content[start : start + lines]
    if not show_line_numbers:
        return "".join(chosen)
    numbered = enumerate(chosen, start + 1)
    return "\n".join(f"{number}: {line.rstrip(chr(10))}" for number, line in numbered)


def write_file(
    folder: Path,
    path: str,
    content: str,
    if_exists: Literal["fail", "append", "overwrite"] = "fail",
) -> None:
    """Write a file."""
    file = _path_of(folder, path)
    if if_exists == "fail" and file.exists():
        raise ToolError("FileExistsError", f"'{path}' exists already")
    before = _text(file, path) if if_exists == "append" and file.exists() else ""
    _write(file, path, before + content)


def edit_file(
    folder: Path,
    path: str,
    old_string: str,
    new_string: str,
    replace_all: bool = False,
    expected_count: int | None = None,
) -> dict[str, int]:
    """Replace a text in a file."""
    file = _path_of(folder, path)
    content = _text(file, path)
    count = content.count(old_string) if old_string else 0
    if count == 0:
        raise ToolError("ValueError", f"old_string does not stand in '{path}'")
    if count > 1 and not replace_all:
        message = f"old_string stands {count} times in '{path}'; set replace_all"
        raise ToolError("ValueError", message)
    if expected_count is not None and expected_count != count:
        raise ToolError("ValueError", f"expected {expected_count} replacements, there are {count}")
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


def glob_files(
    folder: Path,
    pattern: str,
    path: str = ".",
    max_results: int = 100,
    include_hidden: bool = False,
) -> list[str]:
    """Return the files that a pattern names, the newest first."""
    written = pattern if path == "." else f"{path.rstrip('/')}/{pattern}"
    files = _files(folder, written, hidden=include_hidden)
    entries = [(name, file.stat().st_mtime) for name, file in files]
    newest = sorted(entries, key=lambda entry: (-entry[1], entry[0]))
    return [name for name, _ in newest[:max_results]]


def grep_files(
    folder: Path,
    pattern: str,
    files_glob: str,
    lines_before: int = 0,
    lines_after: int = 0,
    case_insensitive: bool = False,
    max_results: int = 50,
    output_mode: Literal["content", "files_only", "count"] = "content",
) -> dict[str, Any]:
    """Find lines of files by a regular expression."""
    try:
        compiled = compile_pattern(pattern, "i" if case_insensitive else "")
        if _GLOB.isdisjoint(files_glob) and not _path_of(folder, files_glob).is_dir():
            files = [(files_glob, _path_of(folder, files_glob))]
        else:
            below = "" if _GLOB.intersection(files_glob) else "/**/*"
            files = list(_files(folder, f"{files_glob.rstrip('/')}{below}"))
        matches: list[dict[str, Any]] = []
        for name, path in files:
            lines = _text(path, name).splitlines()
            for index, line in enumerate(lines):
                if compiled.is_found_in(line, _SEARCH_LIMIT_S):
                    match = {"file": name, "line_number": index + 1, "content": line}
                    if lines_before > 0:
                        match["context_before"] = lines[max(0, index - lines_before) : index]
                    if lines_after > 0:
                        match["context_after"] = lines[index + 1 : index + 1 + lines_after]
                    matches.append(match)
    except PatternError as error:
        raise ToolError("ValueError", str(error)) from error
    result: dict[str, Any] = {"total_matches": len(matches), "files_searched": len(files)}
    names = list(dict.fromkeys(match["file"] for match in matches))
    if output_mode == "files_only":
        return {**result, "files": names[:max_results]}
    if output_mode == "count":
        return {**result, "files_with_matches": len(names)}
    return {**result, "matches": matches[:max_results]}


def file_info(folder: Path, path: str) -> dict[str, Any]:
    """Describe a file or a folder."""
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


def list_files(folder: Path, path: str = ".") -> str:
    """List a folder."""
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


async def _output_of(folder: Path, kind: str, words: list[str], timeout: int) -> str:
    """Return a program's standard output; raise `ToolError` for another exit code than 0."""
    from evalcore.trust.commands import run_command
    from evalcore.trust.text import last_words

    ended = await run_command(words, cwd=folder, timeout_s=max(1, timeout))
    if ended.timed_out:
        message = f"{kind}: it took longer than {timeout} s (timeout)"
        raise ToolError("TimeoutError", message)
    if ended.exit_code:
        tail = last_words(ended.stderr.decode(errors="replace"))
        message = f"{kind}: exit code {ended.exit_code}"
        raise ToolError("RuntimeError", f"{message}: {tail}" if tail else message)
    return ended.stdout.decode(errors="replace")


async def bash(folder: Path, script: str, timeout: int = 30) -> str:
    """Return the output of a bash script."""
    return await _output_of(folder, "bash", ["bash", "-c", script], timeout)


async def run_python_script(folder: Path, script: str, timeout: int = 30) -> str:
    """Return the output of a Python script."""
    return await _output_of(folder, "run_python_script", [sys.executable, "-c", script], timeout)


async def run_process(
    folder: Path, command: str, args: list[str] | None = None, timeout: int = 30
) -> str:
    """Return the output of a program."""
    return await _output_of(folder, "run_process", [command, *(args or ())], timeout)


def _by_name(*functions: Callable[..., Any]) -> Mapping[str, Callable[..., Any]]:
    return MappingProxyType({each.__name__: each for each in functions})


_PROGRAMS: Final = _by_name(bash, run_python_script, run_process)
_FILES: Final = _by_name(
    read_file, write_file, edit_file, glob_files, grep_files, file_info, list_files
)
# The import policy has to allow what writes or starts programs.
_CHECKED: Final = {*_PROGRAMS, "write_file", "edit_file"}


class BuiltinTool(Tool):
    """A function with parameters; files are read, and programs started, in the suite's folder.

    The function takes the folder and then the parameters, whose types are its annotations.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self._function = name, function
        self.description = function.__doc__
        self._parameters = tuple(
            ToolParameter(
                name=each.name,
                type=_type_name(each.annotation),
                **({} if each.default is each.empty else {"default": each.default}),
            )
            for each in list(signature(function).parameters.values())[1:]
        )

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the parameters."""
        return json_schema(self._parameters)

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return tuple(parameter.name for parameter in self._parameters)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return what the function does; raise `ToolError`, or `NotAllowedError`."""
        if self._function.__name__ in _CHECKED:
            run.imports.check_command(f"tool '{self.name}'")
        values = checked_input(self.name, self._parameters, params)
        result = self._function(run.folder, **values)
        return await result if isawaitable(result) else result


def _type_name(annotation: str) -> str:
    """Return an annotation, which is text in this module, as parameters of tools are written."""
    if annotation.startswith("Literal"):
        return "literal:" + "|".join(re.findall(r"'(\w+)'", annotation.replace('"', "'")))
    return annotation.removesuffix(" | None")


FOREIGN: Final = "llm_workers."
OWN: Final = "evalcore.tools"
_MODEL: Final = "llm_workers.tools.llm_tool.build_llm_tool"
# The module of llm-workers that has a tool of a name.
_MODULES: Final = {
    **dict.fromkeys(FETCH, "llm_workers.tools.fetch"),
    **dict.fromkeys(_FILES, "llm_workers.tools.fs"),
    **dict.fromkeys(_PROGRAMS, "llm_workers.tools.unsafe"),
}
BUILT_IN: Final = (_MODEL, *(f"{module}.{name}" for name, module in _MODULES.items()))


def find_builtin(reference: str, name: str | None, config: Mapping[str, Any]) -> Tool | None:
    """Return the tool of such a name, None if it is none of them.

    The names of llm-workers' classes mean the same (`fs.FilesystemToolkit/ReadFileTool`).
    """
    if reference in (_MODEL, f"{OWN}.build_llm_tool", f"{OWN}.llm"):
        return ModelTool(name or "llm", config)
    module, _, kind = reference.replace(".FilesystemToolkit/", ".").rpartition(".")
    kind = snake_case(kind).strip("_").removesuffix("_tool")
    if kind not in _MODULES or module not in (_MODULES[kind], OWN):
        return None
    if kind in FETCH:
        return FetchTool(name or kind, kind, config)
    return BuiltinTool(name or kind, {**_FILES, **_PROGRAMS}[kind])


def built_in_program(reference: str) -> bool:
    """Whether a reference names a tool of the project that reads files or starts programs."""
    return isinstance(find_builtin(reference, None, {}), BuiltinTool)
