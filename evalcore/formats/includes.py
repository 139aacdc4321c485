"""Read the files of script suites: YAML with `!include` and `!require`, below the file's folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from evalcore.errors import LoadError, Problem
from evalcore.formats.documents import (
    Dialect,
    Document,
    Lines,
    RefusedError,
    decode,
    parse_document,
    read_bytes,
)
from evalcore.problems import Problems
from evalcore.wording import Loc, path_text, shown_path

TAGS: Final = ("!include", "!require")
_PARSED: Final = (".yaml", ".yml", ".json")
_DEEPEST: Final = 10
_MOST: Final = 1_000


@dataclass(slots=True)
class _IncludedFile:
    """A file that was read: its document, and the files that its tags name."""

    document: Document
    included: dict[str, _IncludedFile | None] = field(default_factory=dict)
    plain: bool = False

    def tag_at(self, loc: Loc) -> tuple[str, Loc] | None:
        """Return the file that a tag on the way to a path names, and the rest of the path."""
        if not self.included:
            return None
        _, node, rest = self.document.find(loc)
        is_tagged = isinstance(node, Lines) and isinstance(node.members, str)
        return (node.members, rest) if is_tagged else None


@dataclass(frozen=True, slots=True)
class ScriptDocument:
    """A file with everything that it includes. `warnings` name files that are not there.

    A `plain` one holds nothing that only script suites may hold.
    """

    document: Document
    file: _IncludedFile
    warnings: tuple[tuple[int, str], ...] = ()
    plain: bool = False

    def locate(self, loc: Loc) -> tuple[str, int | None]:
        """Return the file in which a path stands, and its line there."""
        file, rest = self.file, loc
        while (tag := file.tag_at(rest)) is not None:
            inner = file.included.get(tag[0])
            if inner is None:
                break
            file, rest = inner, tag[1]
        return file.document.file, file.document.locate(rest)


class ScriptProblems(Problems):
    """MistakeCollector of a file and of what it includes; takes warnings as well."""

    def __init__(self, source: ScriptDocument, *, strict: bool = False) -> None:
        """In strict mode warnings are mistakes."""
        super().__init__(source.document.file, source.document.locate)
        self._source = source
        self._strict = strict
        self.warnings: list[str] = []
        for line, message in source.warnings:
            if strict:
                self.include([Problem(self.file, line, "", message)])
            else:
                self.warnings.append(f"line {line}: {message}")

    def add(self, loc: Loc, message: str, *, label: str = "") -> None:
        """Note a mistake where it stands."""
        file, line = self._source.locate(loc)
        text = f"{label}: {message}" if label else message
        self.include([Problem(file, line, path_text(loc), text)])

    def warn(self, loc: Loc, message: str) -> None:
        """Note a warning."""
        if self._strict:
            self.add(loc, message)
            return
        file, line = self._source.locate(loc)
        other = "" if file == self.file else f"{file}, "
        parts = ["" if line is None else f"line {line}", path_text(loc), message]
        self.warnings.append(other + ": ".join(filter(None, parts)))

    def line(self, loc: Loc) -> str:
        """Return `file:line`."""
        file, line = self._source.locate(loc)
        return file if line is None else f"{file}:{line}"


def read_script_document(path: Path, name: str) -> ScriptDocument:
    """Return a file with what it includes; raise `LoadError`."""
    warnings: list[tuple[int, str]] = []
    budget = [_MOST]
    file = _read(path, name, budget, 0, warnings)
    return ScriptDocument(file.document, file, tuple(warnings), plain=file.plain)


def _read(
    path: Path, name: str, budget: list[int], depth: int, warnings: list[tuple[int, str]]
) -> _IncludedFile:
    data = read_bytes(path, name)
    is_json = path.suffix.lower() == ".json"
    included: dict[str, _IncludedFile | None] = {}
    if is_json or not any(tag.encode() in data for tag in TAGS):
        dialect = Dialect(infinite=True)
        document = parse_document(data, name, is_json=is_json, dialect=dialect)
        odd = data.lower()
        return _IncludedFile(document, plain=is_json or not (b".inf" in odd or b".nan" in odd))
    folder = path.resolve().parent

    def include(tag: str, text: str | None, line: int) -> Any:
        budget[0] -= 1
        if depth >= _DEEPEST or budget[0] < 0:
            raise RefusedError(line, f"{tag}: files include each other too often")
        if not text:
            raise RefusedError(line, f"{tag} is followed by the name of a file")
        target = _inside(folder, text, tag, line)
        if not target.is_file():
            message = f"{tag} {text}: no such file in {folder}"
            if tag == "!require":
                raise RefusedError(line, message)
            warnings.append((line, f"{message}; it is taken as an empty text"))
            return ""
        if target.suffix.lower() not in _PARSED:
            return decode(read_bytes(target, text), shown_path(target))
        inner = included.get(text)
        if inner is None:
            inner = _read(target, shown_path(target), budget, depth + 1, warnings)
            included[text] = inner
        return inner.document.value

    dialect = Dialect(infinite=True, tags=dict.fromkeys(TAGS, include))
    return _IncludedFile(parse_document(data, name, dialect=dialect), included)


def _inside(folder: Path, name: str, tag: str, line: int) -> Path:
    """Return the file of that name below the folder; raise `RefusedError` for any other."""
    try:
        target = (folder / name).resolve()
    except (OSError, ValueError) as error:
        raise RefusedError(line, f"{tag}: {name!r} is no name of a file") from error
    if Path(name).is_absolute() or not target.is_relative_to(folder):
        message = f"{tag} {name}: lies outside {folder}; only files below it may be named"
        raise RefusedError(line, message)
    return target


def find_script(name: str) -> Path:
    """Return the file of a script: a path, or `module:resource.yaml` of an installed package.

    Nothing of the package is imported. Raise `LoadError` if there is none.
    """
    module, separator, resource = name.partition(":")
    if Path(name).exists() or not separator or not module.replace(".", "").isidentifier():
        return Path(name)
    for folder in _package_folders(module):
        path = (folder / resource).resolve()
        if path.is_relative_to(folder.resolve()) and path.is_file():
            return path
    message = f"there is no file '{resource}' in a package '{module}'"
    raise LoadError((Problem(name, None, "", message),))


def _package_folders(module: str) -> list[Path]:
    """Return the folders that a package may have: below the current one, and where it is installed.

    Of an installed package only the outermost is looked up, which imports nothing.
    """
    from importlib.util import find_spec

    top, *inner = module.split(".")
    folders = [Path.cwd().joinpath(top, *inner)]
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    installed = () if spec is None else spec.submodule_search_locations or ()
    return folders + [Path(folder).joinpath(*inner) for folder in installed]
