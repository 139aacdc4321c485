"""Tools that come with the project, and the names by which other programs know them."""

from __future__ import annotations

import mimetypes
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin, urlsplit
from xml.etree.ElementTree import Element, SubElement, tostring

from evalcore.errors import EvalError
from evalcore.model.exchange import Endpoint, ProviderError, Request
from evalcore.patterns import PatternError, compile_pattern
from evalcore.scripts.iteration import Iteration, Scope, Tool, ToolError, WaitingTool
from evalcore.scripts.models import ModelTool
from evalcore.scripts.parameters import ToolParameter, checked_input, json_schema
from evalcore.trust.files import place_inside

_DEEPEST: Final = 200
_VOID: Final = frozenset(
    {
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"),
        *("track", "wbr"),
    }
)
# What an element ends where pages leave out the end tag, up to the nearest of the containers.
_ENDS: Final = {
    "dd": ("dd", "dt"),
    "dt": ("dd", "dt"),
    "li": ("li",),
    "option": ("option",),
    "p": ("p",),
    "td": ("td", "th"),
    "th": ("td", "th"),
    "tr": ("tr",),
}
_CONTAINERS: Final = frozenset({"div", "dl", "ol", "section", "select", "table", "ul"})


class XPathError(ValueError):
    """An XPath is wrong, or uses what is not supported."""


def elements_at(source: str, xpath: str) -> list[str]:
    """Return the HTML of the elements that match, in the order of the page.

    The XPaths are those of `xml.etree`: names, `*`, `..`, `//`, `[@name='value']`, `[tag]`,
    `[.='text']`, `[1]`, `[last()]`, but no functions such as `contains()`. Raises `XPathError`.
    """
    page = _Tree()
    page.feed(source)
    page.close()
    path = f".{xpath}" if xpath.startswith("/") else xpath
    try:
        elements = page.root.findall(path)
    except (SyntaxError, KeyError, ValueError) as error:
        message = f"the xpath '{xpath}' is not supported ({error}); functions are not"
        raise XPathError(message) from error
    return [_html_of(element) for element in elements]


def _html_of(element: Element) -> str:
    tail, element.tail = element.tail, None
    html = tostring(element, encoding="unicode", method="html")
    element.tail = tail
    return html


class _Tree(HTMLParser):
    """Reads a page into elements; what is not closed ends with its parent."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("page")
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        self._end_before(tag)
        element = SubElement(self._open[-1], tag, {name: value or "" for name, value in attrs})
        if tag not in _VOID and len(self._open) < _DEEPEST:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        """End the innermost element of this name, and what is open in it."""
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].tag == tag:
                del self._open[depth:]
                return

    def handle_data(self, data: str) -> None:
        """Add text where it stands."""
        parent = self._open[-1]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + data
        else:
            parent.text = (parent.text or "") + data

    def _end_before(self, tag: str) -> None:
        ends = _ENDS.get(tag, ())
        for depth in range(len(self._open) - 1, 0, -1):
            name = self._open[depth].tag
            if name in ends:
                del self._open[depth:]
                return
            if name in _CONTAINERS:
                return


FETCH: Final = ("fetch_content", "fetch_page_text", "fetch_page_markdown", "fetch_page_links")
_FETCH_PARAMETERS: Final = ("url", "xpath", "headers", "on_no_content", "on_error")
_ON: Final = ("raise_exception", "return_error", "return_empty")
_AGENT: Final = "Mozilla/5.0 (compatible; evalcore)"
_HIDDEN: Final = frozenset({"script", "style", "noscript", "template", "head"})
_BLOCKS: Final = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "br",
        "dd",
        "div",
        "dl",
        "dt",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "td",
        "th",
        "tr",
        "ul",
    ]
)


class FetchTool(WaitingTool):
    """Fetches `url` by GET; like any call it is limited, recorded and replayed."""

    def __init__(self, name: str, kind: str, config: Mapping[str, Any]) -> None:
        """Take one of `FETCH`, and what a call need not say."""
        self.name = name
        self.description = "Fetches a web page."
        self._kind = kind
        self._config = dict(config)

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return _FETCH_PARAMETERS

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        properties = {"url": {"type": "string"}}
        return {"type": "object", "properties": properties, "required": ["url"]}

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return the page's text, Markdown, links or source."""
        options = {**self._config, **params}
        for name in options:
            if name not in _FETCH_PARAMETERS:
                run.warn(f"tool '{self.name}' has no parameter '{name}'; it is ignored")
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
        if not xpath or self._kind == "fetch_content":
            return _read(self._kind, text, url)
        return self._elements(str(xpath), text, url, options)

    def _elements(self, xpath: str, text: str, url: str, options: Mapping[str, Any]) -> Any:
        try:
            parts = [_read(self._kind, part, url) for part in elements_at(text, xpath)]
        except XPathError as error:
            raise ToolError("ValueError", f"{self.name}: {error}") from None
        if not parts:
            message = f"nothing at {url} matches '{xpath}'"
            return self._instead(options, "on_no_content", message)
        if self._kind == "fetch_page_links":
            return [link for links in parts for link in links]
        return "\n".join(parts)

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


def _read(kind: str, text: str, url: str) -> Any:
    if kind == "fetch_content":
        return text
    if kind == "fetch_page_text":
        return page_text(text)
    page = _Page(markdown=kind == "fetch_page_markdown")
    page.feed(text)
    page.close()
    if kind == "fetch_page_links":
        links = [(urljoin(url, link), label) for link, label in page.links]
        return [
            {"link": link, "text": label or None}
            for link, label in links
            if urlsplit(link).scheme in ("http", "https")
        ]
    return page.text()


def page_text(source: str) -> str:
    """Return the visible text of a page, a line for each block."""
    page = _Page(markdown=False)
    page.feed(source)
    page.close()
    return page.text()


class _Page(HTMLParser):
    """Reads the visible text of a page, and its links with theirs."""

    def __init__(self, *, markdown: bool) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[tuple[str, str]] = []
        self._markdown = markdown
        self._pieces: list[str] = []
        self._hidden = 0
        self._link: tuple[str, int] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a line, a link or something hidden."""
        if tag in _HIDDEN:
            self._hidden += 1
        if tag in _BLOCKS:
            self._pieces.append("\n")
            if self._markdown and len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
                self._pieces.append("#" * int(tag[1]) + " ")
            elif self._markdown and tag == "li":
                self._pieces.append("* ")
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self._link = (href, len(self._pieces))

    def handle_endtag(self, tag: str) -> None:
        """End what `handle_starttag` began."""
        if tag in _HIDDEN:
            self._hidden = max(0, self._hidden - 1)
        if tag in _BLOCKS:
            self._pieces.append("\n")
        if tag == "a" and self._link is not None:
            href, start = self._link
            label = " ".join("".join(self._pieces[start:]).split())
            self.links.append((href, label))
            if self._markdown:
                self._pieces[start:] = [f"[{label}]({href})"]
            self._link = None

    def handle_data(self, data: str) -> None:
        """Take text that is shown."""
        if not self._hidden:
            self._pieces.append(" ".join(data.split("\n")) if self._markdown else data)

    def text(self) -> str:
        """Return the text, a line for each block."""
        lines = (" ".join(line.split()) for line in "".join(self._pieces).split("\n"))
        return "\n".join(line for line in lines if line)


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
        compiled = compile_pattern(pattern, "i" if search.ignore_case else "")
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


_SCRIPT: Final = ToolParameter(name="script", type="str")
_TIMEOUT: Final = ToolParameter(name="timeout", type="int", default=30)
_PROGRAM_PARAMETERS: Final = {
    "bash": (_SCRIPT, _TIMEOUT),
    "run_python_script": (_SCRIPT, _TIMEOUT),
    "run_process": (
        ToolParameter(name="command", type="str"),
        ToolParameter(name="args", type="list[str]", default=[]),
        _TIMEOUT,
    ),
}
_DESCRIPTIONS: Final = {
    "bash": "Executes a bash script and returns its output.",
    "run_python_script": "Runs a Python script and returns its output.",
    "run_process": "Runs a program and returns its output.",
}
PROGRAMS: Final = tuple(_PROGRAM_PARAMETERS)


class ProgramTool(WaitingTool):
    """Starts a program in the suite's folder, if the import policy lets it start programs."""

    def __init__(self, name: str, kind: str) -> None:
        """Take one of `PROGRAMS`."""
        self.name = name
        self.description = _DESCRIPTIONS[kind]
        self._kind = kind
        self._parameters = _PROGRAM_PARAMETERS[kind]

    def parameters(self) -> tuple[str, ...] | None:
        """Return the parameters of a call."""
        return tuple(parameter.name for parameter in self._parameters)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        return json_schema(self._parameters)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return the standard output; raise `ToolError` for another exit code than 0."""
        from evalcore.trust.commands import run_command
        from evalcore.trust.text import last_words

        run.imports.check_command(f"tool '{self.name}'")
        values = checked_input(self.name, self._parameters, params)
        timeout_s = max(1, values["timeout"])
        ended = await run_command(self._words(values), cwd=run.folder, timeout_s=timeout_s)
        if ended.timed_out:
            message = f"{self.name}: it took longer than {values['timeout']} s (timeout)"
            raise ToolError("TimeoutError", message)
        if ended.exit_code:
            tail = last_words(ended.stderr.decode(errors="replace"))
            message = f"{self.name}: exit code {ended.exit_code}"
            raise ToolError("RuntimeError", f"{message}: {tail}" if tail else message)
        return ended.stdout.decode(errors="replace")

    def _words(self, values: dict[str, Any]) -> list[str]:
        """Return the program with its arguments."""
        if self._kind == "run_process":
            return [values["command"], *values["args"]]
        program = "bash" if self._kind == "bash" else sys.executable
        return [program, "-c", values["script"]]


FOREIGN: Final = "llm_workers."
OWN: Final = "evalcore.tools."
_MODEL: Final = "llm_workers.tools.llm_tool.build_llm_tool"
_MODEL_NAME: Final = "llm"
_FETCH_MODULE: Final = "llm_workers.tools.fetch."
_FILE_MODULE: Final = "llm_workers.tools.fs."
_PROGRAM_MODULE: Final = "llm_workers.tools.unsafe."
BUILT_IN: Final = (
    _MODEL,
    *(f"{_FETCH_MODULE}{name}" for name in FETCH),
    *(f"{_FILE_MODULE}{name}" for name in FILES),
    *(f"{_PROGRAM_MODULE}{name}" for name in PROGRAMS),
)


def find_builtin(reference: str, name: str | None, config: Mapping[str, Any]) -> Tool | None:
    """Return the tool of such a name, None if it is none of them."""
    if reference in (_MODEL, f"{OWN}build_llm_tool", f"{OWN}llm"):
        return ModelTool(name or _MODEL_NAME, "Asks a model.", config)
    for prefix in (_FETCH_MODULE, OWN):
        kind = _snake_case(reference.removeprefix(prefix))
        if reference.startswith(prefix) and kind in FETCH:
            return FetchTool(name or kind, kind, config)
    for prefix in (_FILE_MODULE, _PROGRAM_MODULE, OWN):
        kind = _snake_case(reference.removeprefix(prefix).removeprefix("FilesystemToolkit/"))
        if reference.startswith(prefix) and kind in FILES and prefix != _PROGRAM_MODULE:
            return FileTool(name or kind, kind)
        if reference.startswith(prefix) and kind in PROGRAMS and prefix != _FILE_MODULE:
            return ProgramTool(name or kind, kind)
    return None


def built_in_program(reference: str) -> bool:
    """Whether a reference names a tool of the project that reads files or starts programs."""
    return isinstance(find_builtin(reference, None, {}), FileTool | ProgramTool)


def _snake_case(name: str) -> str:
    """Return `fetch_page_text` for `FetchPageTextTool`."""
    if not name[:1].isupper():
        return name
    text = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return text.removeprefix("_").removesuffix("_tool")


_COUNTS: Final = ("true_positives", "false_negatives", "false_positives")


def _f_beta(hits: int, missed: int, false_alarms: int, beta: float) -> float:
    """Return the F-beta score in [0, 1]; 0 without hits (van Rijsbergen 1979)."""
    if hits == 0:
        return 0.0
    precision, recall = hits / (hits + false_alarms), hits / (hits + missed)
    weight = beta**2
    divisor = weight * precision + recall
    return (1 + weight) * precision * recall / divisor if divisor else 0.0


def _linear(hits: int, missed: int, false_alarms: int, w_fn: float, w_fp: float) -> float:
    """Return a score from 0 to 100, as llm-workers computes it.

    100 less the weighted share of errors that are expected; 10 · `w_fp` for each false alarm where
    none is expected.
    """
    if hits + missed == 0:
        return max(0.0, 100.0 - false_alarms * w_fp * 10.0)
    penalty = (w_fn * missed + w_fp * false_alarms) / (hits + missed)
    return max(0.0, 100.0 - penalty * 100.0)


class ScoreTool:
    """Computes a score; it waits for nothing."""

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Sequence[ToolParameter],
        compute: Callable[..., float],
    ) -> None:
        self.name = name
        self.description = description
        self._parameters = tuple(parameters)
        self._compute = compute

    def waits(self, asked_tools: set[int]) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Return False."""
        return False

    def parameters(self) -> tuple[str, ...] | None:
        """Return the names of the parameters."""
        return tuple(parameter.name for parameter in self._parameters)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the parameters."""
        return json_schema(self._parameters)

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return the score; raise `ToolError` for parameters that do not fit."""
        values = checked_input(self.name, self._parameters, params)
        try:
            return self._compute(*values.values())
        except (ZeroDivisionError, OverflowError) as error:
            raise ToolError(type(error).__name__, f"{self.name}: {error}") from None


def score_tools() -> tuple[ScoreTool, ...]:
    """Return the tools, new ones each time."""
    counts = [ToolParameter(name=name, type="int") for name in _COUNTS]
    beta = ToolParameter(name="beta", type="float", default=1.0)
    weights = [
        ToolParameter(name="w_fn", type="float", default=2.0),
        ToolParameter(name="w_fp", type="float", default=0.5),
    ]
    return (
        ScoreTool("f_beta_score", "Computes the F-beta score.", [*counts, beta], _f_beta),
        ScoreTool("linear_score", "Computes a score of 0 to 100.", [*counts, *weights], _linear),
    )
