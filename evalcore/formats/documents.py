"""YAML and JSON: read safely, with the line of everything in them, and written."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn, cast

import jiter
import orjson
import yaml
from yaml._yaml import CParser as _Parser

from evalcore.errors import EvalError, LoadError, Problem
from evalcore.jsonvalues import INFINITE, Storable, parse, storable
from evalcore.problems import Problems
from evalcore.shapes import camel_case
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.wording import Loc, path_text, shown_path


def with_snake_keys(raw: Any, keys: Iterable[str]) -> Any:
    """Return the mapping with those of its keys renamed that `keys` have in snake_case only.

    A key that is there in both forms stays: the check of the keys does not know it. `Document`
    finds the lines of both forms.
    """
    if not isinstance(raw, Mapping):
        return raw
    written = {camel_case(name): name for name in keys}
    return {
        key if (name := written.get(key, key)) in raw else name: value for key, value in raw.items()
    }


_SEPARATORS: Final = re.compile("[\x85\u2028\u2029]")


def _refuse_separators(text: str, file: str) -> None:
    """Raise `LoadError` for characters that YAML 1.2 reads as text, and its parser as line ends."""
    found = _SEPARATORS.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        escaped = found[0].encode("unicode_escape").decode()
        message = f"holds the line separator {escaped}; write it so, in double quotes"
        raise_problem(file, line, message)


# The parser's words → ours; `{0}` is what the pattern's group found.
_JSON: Final = (
    (r'Detected duplicate key "(.*)"', "duplicate key '{0}'"),
    (r"recursion limit exceeded", "nested too deeply"),
    (r"EOF while parsing (.*)", "it ends in the middle of {0}; something is not closed"),
    (r"trailing comma", "a comma too many before ']' or '}}'"),
    (r"trailing characters", "more text after the end of the value"),
    (r"key must be a string", "expected a key in double quotes (JSON has no comments)"),
    (
        r"expected (?:value|ident)",
        "no JSON value (text stands in double quotes; NaN is none)",
    ),
    (r"control character .*", "a line break or another control character inside a text; escape it"),
    (r"invalid unicode code point", "not UTF-8; save it as UTF-8"),
    (r"(?:invalid|unexpected end of hex) escape", "no valid escape; write a backslash as \\\\"),
)
_INDENTATION: Final = ("did not find expected key", "did not find expected '-' indicator")
_YAML: Final = (
    ("found undefined alias", "alias without an anchor; quote a text that starts with '*'"),
    ("alphabetic or numeric character", "quote a text that starts with '*' or '&'"),
    ("found a tab character", "a tab in the indentation; use spaces"),
    ("escape", "no valid escape in double quotes; use single quotes, or write a backslash as \\\\"),
    ("hexdecimal", "no valid escape in double quotes; use single quotes, or write \\\\ for \\"),
    ("<document start>", "holds several YAML documents; only one is allowed (remove the '...')"),
    ("mapping values are not allowed", "quote a text that contains ': ', or check the indentation"),
    ("comment or line break", "nothing may follow '|' or '>' here; quote a text that starts so"),
    ("expected node content", "a value is missing, or starts with a character that needs quotes"),
    ("directive", "a line cannot start with '%'; quote it"),
    ("unhashable key", "a key must be text, not a list or a mapping"),
    ("second occurrence", "the same anchor is defined twice"),
    ("for merging", "'<<' takes a mapping or a list of mappings"),
)


def json_reason(error: ValueError) -> str:
    """Return what is wrong with a JSON text, without a place."""
    reason = re.sub(r" at line \d+ column \d+$", "", str(error))
    for pattern, words in _JSON:
        match = re.fullmatch(pattern, reason, re.DOTALL)
        if match:
            return words.format(*match.groups())
    return reason


def yaml_reason(error: yaml.MarkedYAMLError, text: str) -> tuple[int | None, str]:
    """Return the line (from 1) and what is wrong there."""
    problem, context = error.problem or "cannot be parsed", error.context or ""
    mark: Any = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    opened: Any = error.context_mark
    if "could not determine a constructor for the tag" in problem:
        tag = problem.rsplit(" ", 1)[-1].strip("'").replace("tag:yaml.org,2002:", "!!")
        return line, f"the tag {tag} is not supported; write a plain value"
    if "expected a single document" in context:
        return line, "holds several YAML documents; only one is allowed (remove the extra '---')"
    if "quoted scalar" in context and "end of stream" in problem:
        return opened.line + 1, "not valid YAML: the quote that is opened here is never closed"
    if "expected ':'" in problem and opened:
        return opened.line + 1, "not valid YAML: expected 'key: value', the ':' is missing"
    return line, f"not valid YAML: {_reason(problem, context, mark, opened, text)}"


def _reason(problem: str, context: str, mark: Any, opened: Any, text: str) -> str:
    before, character = _around(mark, text)
    if "cannot start any token" in problem:
        if character == "\t":
            return "a tab in the indentation; use spaces"
        return f"a value cannot start with '{character}'; quote it"
    if "expected ',' or" in problem and opened:
        bracket = "[" if "sequence" in context else "{"
        return (
            f"expected ',' or the end of the '{bracket}' that is opened at line {opened.line + 1}"
        )
    if problem in _INDENTATION and opened:
        if before.strip(" -"):
            return "more text after the end of a value; quote the whole text"
        what = "list" if "collection" in context else "mapping"
        return (
            f"does not fit the {what} that begins at line {opened.line + 1}; check the indentation"
        )
    return next((words for part, words in _YAML if part in problem or part in context), problem)


def _around(mark: Any, text: str) -> tuple[str, str]:
    """Return the text of the mark's line before the mark, and the character at it."""
    if mark is None:
        return "", ""
    lines = text.split("\n", mark.line + 1)
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[: mark.column], line[mark.column : mark.column + 1]


MAX_DEPTH: Final = 100
# Of a value that takes two characters Python makes an object of about a hundred bytes.
MAX_VALUES: Final = 2_500_000
MIN_INT, MAX_INT = -(2**63), 2**64 - 1

_INT: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_INFINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_CONSTANTS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_FIRSTS: Final = frozenset("-+.0123456789")
_BASES: Final = {"0o": 8, "0x": 16}
_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = "<<"
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


class RefusedError(Exception):
    """A rule of this page is broken at a line of the file that is being read."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class _NotYamlError(RefusedError):
    """The syntax of YAML is broken."""


class Dialect(NamedTuple):
    """What a format reads beside YAML 1.2's core schema.

    `tags` make values of the text that a tag stands before (None for a collection) and its line.
    """

    infinite: bool = False
    tags: Mapping[str, Callable[[str, str | None, int], Any]] = {}


CORE: Final = Dialect()


def plain_scalar(text: str, line: int = 1, *, infinite: bool = False) -> Any:
    """Return what a scalar without quotes means in YAML 1.2's core schema.

    Raises `RefusedError` for a number that JSON does not hold.
    """
    if text[:1] in _FIRSTS and text:
        if _INT.fullmatch(text):
            return _integer(text, line)
        if _FLOAT.fullmatch(text) or _INFINITE.fullmatch(text):
            return _decimal(text, line, infinite=infinite)
        return text
    return _CONSTANTS.get(text, text)


def _integer(text: str, line: int) -> int:
    base = _BASES.get(text[:2], 10)
    try:
        number = int(text[2:] if base != 10 else text, base)
    except ValueError as error:
        raise RefusedError(line, _NO_NUMBER) from error
    if not MIN_INT <= number <= MAX_INT:
        raise RefusedError(line, TOO_LARGE)
    return number


def _decimal(text: str, line: int, *, infinite: bool) -> float:
    is_infinite = text.lower().endswith(("inf", "nan"))
    if is_infinite and not (infinite and _INFINITE.fullmatch(text)):
        raise RefusedError(line, f"{text} is not a number JSON can hold")
    try:
        number = float(text.replace(".", "") if is_infinite else text)
    except ValueError as error:
        raise RefusedError(line, _NO_NUMBER) from error
    if is_infinite:
        return number
    if math.isinf(number):
        raise RefusedError(line, TOO_LARGE)
    # `1e3` is a whole number; above 2⁵³ it stays a float, as not every integer has one there.
    is_whole = "e" in text.lower() and number.is_integer() and abs(number) <= 2**53
    return int(number) if is_whole else number


def _tagged(event: Any, line: int, dialect: Dialect) -> Any:
    """Return the value of a scalar with a tag."""
    tag, text = event.tag, event.value
    if tag in dialect.tags:
        return dialect.tags[tag](tag, text, line)
    if tag in {"!", f"{_TAG}str"}:
        return text
    if tag == f"{_TAG}int":
        return _integer(text, line)
    if tag == f"{_TAG}float":
        return _decimal(text, line, infinite=dialect.infinite)
    if tag == f"{_TAG}null":
        return None
    if tag == f"{_TAG}bool":
        if text.lower() not in {"true", "false"}:
            raise RefusedError(line, "not true or false")
        return text.lower() == "true"
    raise _unsupported(tag, line)


def _unsupported(tag: str, line: int) -> RefusedError:
    shown = tag.replace(_TAG, "!!")
    return RefusedError(line, f"the tag {shown} is not supported; write a plain value")


class Lines:
    """A list or mapping: its line, and the lines of its members: a scalar's, or `Lines`.

    A mapping's members are pairs of the key's line and the value's. What a dialect's tag stands
    before has its text as members.
    """

    __slots__ = ("line", "members")

    def __init__(self, line: int, members: list[Any] | dict[str, Any] | str) -> None:
        self.line = line
        self.members: Any = members

    def find(self, loc: Loc) -> tuple[int, Any, Loc]:
        """Return the line of what exists of a path, what stands there, and the rest of the path."""
        line, node = self.line, cast("Any", self)
        for end, part in enumerate(loc):
            members = None if isinstance(node, int) else node.members
            if isinstance(members, dict):
                key = str(part) if str(part) in members else camel_case(str(part))
                if key not in members:
                    return line, node, loc[end:]
                line, node = members[key]
            elif isinstance(members, list) and isinstance(part, int) and part < len(members):
                node = members[part]
                line = node if isinstance(node, int) else node.line
            else:
                return line, node, loc[end:]
        return line, node, ()


Placed = tuple[Any, Any]
"""A value, and its line or `Lines`."""


class _YamlReader:
    """Reads the one document of a text; raises `RefusedError` and PyYAML's errors."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._following: Callable[[], Any] = _Parser(text).get_event
        self._dialect = dialect
        # A value, its lines and how many values it has; None while it is being read.
        self._anchors: dict[str, tuple[Any, Any, int] | None] = {}
        self._size = 0

    def document(self) -> Placed:
        read: Placed | None = None
        while (kind := type(event := self._following())) is not yaml.StreamEndEvent:
            if kind is yaml.DocumentStartEvent:
                if read is not None:
                    raise RefusedError(event.start_mark.line + 1, _SEVERAL)
                read = self._read(self._following(), 0)
        return read or (None, None)

    def _read(self, event: Any, depth: int) -> Placed:
        line, anchor = event.start_mark.line + 1, event.anchor
        before = self._size
        self._count(1, None, _TOO_MANY)
        kind = type(event)
        if kind is yaml.AliasEvent:
            return self._alias(anchor, line)
        if anchor:
            if anchor in self._anchors:
                raise _NotYamlError(line, "not valid YAML: the same anchor is defined twice")
            self._anchors[anchor] = None
        if kind is yaml.ScalarEvent:
            read = self._scalar(event, line)
        else:
            read = self._collection(event, kind is yaml.SequenceStartEvent, line, depth)
        if anchor:
            self._anchors[anchor] = (*read, self._size - before)
        return read

    def _count(self, more: int, line: int | None, message: str) -> None:
        self._size += more
        if self._size > MAX_VALUES:
            raise RefusedError(line, message)

    def _alias(self, name: str, line: int) -> Placed:
        if name not in self._anchors:
            raise _NotYamlError(line, f"not valid YAML: {_YAML[0][1]}")
        if (named := self._anchors[name]) is None:
            raise RefusedError(line, f"the alias *{name} contains itself")
        value, node, size = named
        self._count(size - 1, line, f"aliases expand to more than {MAX_VALUES} values")
        return value, node

    def _scalar(self, event: Any, line: int) -> Placed:
        if event.tag is not None:
            value = _tagged(event, line, self._dialect)
            return value, Lines(line, event.value) if event.tag in self._dialect.tags else line
        if event.style:
            return event.value, line
        return plain_scalar(event.value, line, infinite=self._dialect.infinite), line

    def _collection(self, event: Any, is_list: bool, line: int, depth: int) -> Placed:
        tag = event.tag
        if tag in self._dialect.tags:
            self._dialect.tags[tag](tag, None, line)
        if tag not in {None, "!", f"{_TAG}seq" if is_list else f"{_TAG}map"}:
            raise _unsupported(tag, line)
        if depth >= MAX_DEPTH:
            raise RefusedError(line, f"nested deeper than {MAX_DEPTH} levels")
        read, end = self._read, yaml.SequenceEndEvent
        if not is_list:
            return self._mapping(line, depth + 1)
        values, nodes = [], []
        while type(inner := self._following()) is not end:
            value, node = read(inner, depth + 1)
            values.append(value)
            nodes.append(node)
        return values, Lines(line, nodes)

    def _mapping(self, line: int, depth: int) -> Placed:
        following, read = self._following, self._read
        mapping: dict[Any, Any] = {}
        lines: dict[str, Any] = {}
        merged: list[Any] = []
        while type(inner := following()) is not yaml.MappingEndEvent:
            at = inner.start_mark.line + 1
            is_merge = type(inner) is yaml.ScalarEvent and inner.value == _MERGE
            if is_merge and not inner.style and inner.tag is None:
                merged += self._merged(read(following(), depth)[0], at)
                continue
            key, _ = read(inner, depth)
            if isinstance(key, list | dict):
                message = "not valid YAML: a key must be text, not a list or a mapping"
                raise RefusedError(at, message)
            if key in mapping:
                first = list(lines.values())[list(mapping).index(key)][0]
                raise RefusedError(at, f"duplicate key {key!r} (first at line {first})")
            mapping[key], node = read(following(), depth)
            lines[key if type(key) is str else str(getattr(inner, "value", key))] = at, node
        if merged:
            mapping = {**reduce(or_, merged), **mapping}
        return mapping, Lines(line, lines)

    def _merged(self, value: Any, line: int) -> list[dict[Any, Any]]:
        """Return the mappings of `<<`, the one that counts most last."""
        mappings = value[::-1] if isinstance(value, list) else [value]
        if not all(isinstance(each, dict) for each in mappings):
            message = "not valid YAML: '<<' takes a mapping or a list of mappings"
            raise RefusedError(line, message)
        return mappings


def _json_lines(text: str) -> Lines | int:
    """Return the lines of a JSON text that is known to be valid."""
    line, end = 1, 0
    # Of each open list or mapping its lines; of a mapping a key, and its line, whose value follows.
    opened, keys = [Lines(1, [])], [("", 0)]
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", end, token.start())
        end, word = token.start(), token[0]
        if word in ",:":
            continue
        if word in "]}":
            opened.pop()
            keys.pop()
            continue
        members, key = opened[-1].members, keys[-1]
        node: Any = line
        if word in "[{":
            node = Lines(line, [] if word == "[" else {})
        if isinstance(members, list):
            members.append(node)
        elif not key[1]:
            keys[-1] = (json.loads(word), line)
            continue
        else:
            members[key[0]] = (key[1], node)
            keys[-1] = ("", 0)
        if node is not line:
            opened.append(node)
            keys.append(("", 0))
    found: Lines | int = opened[0].members[0]
    return found


MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_JSON_MARKS = 10_000_000
_LOOKED_AT = 8192
_OTHER_FILES: Final = {
    (".xlsx", ".xlsm", ".xls", ".ods"): "is a spreadsheet; save it as CSV, with a test in each row",
    (".tsv",): "rename it to *.csv, where columns may be separated by tabs",
    (".ndjson",): "rename it to *.jsonl, which has a JSON value in each line",
    (".gz", ".zst", ".bz2", ".xz", ".zip"): "is compressed; name the unpacked file",
}

TOO_LARGE: Final = "a number of more than 64 bits; write it in quotes if it is meant as text"
_TOO_MANY = "holds too many values for one document; use JSONL or Parquet, which are streamed"
_NOT_STRICT: Final = (b"\\u", b"NaN", b"Infinity")
_NO_NUMBER = "not a number (or one of too many digits)"
_SEVERAL = "holds several YAML documents; only one is allowed (remove the extra '---')"


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed file: its value, and how to find the line of any path into it."""

    file: str
    value: Any
    sha256: str
    lines: Callable[[], Lines | int | None]

    def find(self, loc: Loc) -> tuple[int | None, Any, Loc]:
        """Return the line of what exists of a path, what stands there, and the rest of the path."""
        lines = self.lines()
        return lines.find(loc) if isinstance(lines, Lines) else (lines, lines, loc)

    def locate(self, loc: Loc) -> int | None:
        """Return the line (from 1) of a path, or of the deepest part of it that exists."""
        return self.find(loc)[0]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which makes loading millions of objects 2.5 times slower."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def read_document(path: Path, name: str | None = None, dialect: Dialect = CORE) -> Document:
    """Read a YAML or (`*.json`) JSON file; raise `LoadError` naming the place of what is wrong.

    `name` is the file's name in messages, the path by default; `dialect` is that of the YAML in it.
    """
    file = name or str(path)
    is_json = path.suffix.lower() == ".json"
    return parse_document(read_bytes(path, file), file, is_json=is_json, dialect=dialect)


def read_named(
    name: str, folder: Path, loc: Loc, problems: Problems
) -> tuple[Path, Document, Problems] | None:
    """Return a file that another one names at `loc`, and a collector of its own; None, noted."""
    try:
        path = resolve_inside(repository_root(folder.resolve()), folder, name)
        document = read_document(path, shown_path(path))
    except LoadError as error:
        problems.include(error.problems)
    except EvalError as error:
        problems.add(loc, str(error))
    else:
        return path, document, Problems(document.file, document.locate)
    return None


def read_bytes(path: Path, name: str) -> bytes:
    """Return the file's bytes; raise `LoadError` if it cannot be read or is too large."""
    try:
        if path.is_dir():
            raise_problem(name, None, "is a folder; name a suite file")
        with path.open("rb") as file:  # a device may never end
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            limit = MAX_FILE_BYTES // 2**20
            raise_problem(
                name, None, f"larger than {limit} MiB; use JSONL or Parquet, which are streamed"
            )
        return data
    except FileNotFoundError:
        raise_problem(name, None, "no such file")
    except OSError as error:
        raise_problem(name, None, f"cannot be read: {error.strerror}")


def parse_document(
    data: bytes, file: str, *, is_json: bool = False, dialect: Dialect = CORE
) -> Document:
    """Parse one document; raise `LoadError` with the line of the first thing that is wrong."""
    text = decode(data, file)
    if not text.strip():
        raise_problem(file, None, "is empty")
    if not is_json and not text.lstrip().startswith(("{", "[")):
        _refuse_separators(text, file)
    try:
        value, is_json = _parsed(data, text, is_json=is_json, dialect=dialect)
    except RefusedError as error:
        raise_problem(file, error.line, error.message)
    if not is_json:
        _refuse_separators(text, file)
    # Only messages need lines: the text is read again for the first of them.
    silent = Dialect(dialect.infinite, dict.fromkeys(dialect.tags, _nothing))
    read = (
        partial(_json_lines, text) if is_json else lambda: _YamlReader(text, silent).document()[1]
    )
    return Document(file, value, hashlib.sha256(data).hexdigest(), cache(read))


def _nothing(tag: str, text: str | None, line: int) -> None:
    """Read no file for lines."""


def decode(data: bytes, file: str) -> str:
    """Return UTF-8 text (a byte-order mark is dropped); raise `LoadError` with the line."""
    for endings, advice in _OTHER_FILES.items():
        if file.lower().endswith(endings):
            raise_problem(file, None, advice)
    refuse_utf16(data, file)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if b"\0" in data[:_LOOKED_AT]:
            raise_problem(file, None, "is not a text file; name a suite file")
        line = data.count(b"\n", 0, error.start) + 1
        raise_problem(file, line, f"not UTF-8 (byte 0x{data[error.start]:02x}); save it as UTF-8")


def refuse_utf16(data: bytes, file: str) -> None:
    """Raise `LoadError` for the beginning of a text in UTF-16."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise_problem(file, None, "is UTF-16; save it as UTF-8")


def raise_problem(file: str, line: int | None, message: str) -> NoReturn:
    """Raise a `LoadError` with this one problem."""
    raise LoadError((Problem(file, line, "", message),))


def parse_json(data: bytes) -> Any:
    """Parse strict JSON: no duplicate keys, no NaN; raise `ValueError` with line and column."""
    # Keys are repeated, values hardly.
    return jiter.from_json(data, catch_duplicate_keys=True, allow_inf_nan=False, cache_mode="keys")


def parse_row(data: bytes) -> Storable:
    """Parse JSON that a program wrote, in UTF-8: `parse_json` with halves of pairs, and NaN.

    They are replaced, which the notes tell; raises `ValueError` as `parse_json` does.
    """
    try:
        return Storable(parse_json(data))
    except ValueError as error:
        return parse_written(data, error)


def parse_written(data: bytes, error: ValueError) -> Storable:
    """Parse JSON that `parse_json` refused with this error, as `parse_row` does."""
    if any(mark in data for mark in _NOT_STRICT):
        with suppress(ValueError):
            return storable(parse(data.decode(), pairs=_unique))
    raise error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        raise ValueError("duplicate key")
    return mapping


def too_large_number(data: bytes, value: Any) -> str | None:
    """Return where parsed JSON has a number that 64 bits do not hold, as a message."""
    loc = too_large_at(data, value)
    return None if loc is None else f"{path_text(loc)}: {TOO_LARGE}"


def too_large_at(data: bytes, value: Any) -> Loc | None:
    """Return where parsed JSON has the first number that 64 bits do not hold."""
    shape = data.translate(_SHAPES)
    # Three digits in a row first: few lines have them, and none is found soonest.
    if b"000" not in shape or not (b"0e000" in shape or b"0e+000" in shape or _LONG in shape):
        return None
    return _too_large_at(value, ())


SCHEMA_KEY: Final = "$schema"
"""The key by which editors find the schema of a file; it has no effect."""
NOTE: Final = "x-"
"""What keys at the top of a file begin with that hold parts for YAML's aliases."""


def without_notes(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file without the keys that have no effect: `$schema`, and parts below `x-…`."""
    return {
        key: value
        for key, value in document.items()
        if key != SCHEMA_KEY and not (isinstance(key, str) and key.startswith(NOTE))
    }


def as_json(value: Any) -> Any:
    """Return a read value as JSON holds it: YAML's keys that are no text become text."""
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))


def _parsed(data: bytes, text: str, *, is_json: bool, dialect: Dialect) -> tuple[Any, bool]:
    """Return the value, and whether it was read as JSON; raise `RefusedError`."""
    if is_json:
        return _parse_json(data), True
    try:
        return _parse_yaml(text, dialect), False
    except _NotYamlError:
        # Programs write JSON under any name, with characters and pairs of escapes (emoji) that
        # YAML's parser refuses.
        if text.lstrip()[:1] in ("{", "["):
            with suppress(RefusedError):
                return _parse_json(data), True
        raise


def _parse_json(data: bytes) -> Any:
    if len(data) > MAX_JSON_MARKS and sum(map(data.count, (b",", b"[", b"{"))) > MAX_JSON_MARKS:
        raise RefusedError(None, _TOO_MANY)
    try:
        value = _authored(data.removeprefix(b"\xef\xbb\xbf"))
    except ValueError as error:
        position = re.search(r" at line (\d+) column (\d+)$", str(error))
        line = int(position[1]) if position else None
        raise RefusedError(line, f"not valid JSON: {json_reason(error)}") from error
    if (loc := too_large_at(data, value)) is not None:
        lines = _json_lines(data.decode("utf-8-sig"))
        line = lines.find(loc)[0] if isinstance(lines, Lines) else lines
        raise RefusedError(line, TOO_LARGE)
    return value


def _authored(data: bytes) -> Any:
    """Return the value of a document; a NaN in it is a mistake."""
    value, notes = parse_row(data)
    return parse_json(data) if INFINITE in notes else value


# All digits as 0 and E as e: a part is found in a small share of a regular expression's time.
_SHAPES: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG: Final = b"0" * 19


def _too_large_at(value: Any, loc: Loc) -> Loc | None:
    """Return where the first number stands that 64 bits do not hold."""
    if isinstance(value, float):
        return loc if math.isinf(value) else None
    if isinstance(value, int):
        return None if MIN_INT <= value <= MAX_INT else loc
    members: Any = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    paths = (_too_large_at(member, (*loc, key)) for key, member in members)
    return next((path for path in paths if path is not None), None)


def _parse_yaml(text: str, dialect: Dialect) -> Any:
    try:
        with collector_paused():
            return _YamlReader(text, dialect).document()[0]
    except yaml.MarkedYAMLError as error:
        raise _NotYamlError(*yaml_reason(error, text)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = (
            f"the character {chr(error.character)!a} is not allowed in YAML"
            if isinstance(error.character, int)
            else "not readable as YAML"
        )
        raise _NotYamlError(line, message) from error


def yaml_text(content: Mapping[str, Any]) -> str:
    """Return the text of a file, its keys in their order."""
    text: str = yaml.dump(
        content, Dumper=_CoreDumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text


class _CoreDumper(yaml.SafeDumper):  # libyaml's writes an emoji as its number
    """Quotes each text that YAML 1.2's core schema or YAML 1.1 reads as something else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write equal values each time: anchors are hard to read."""
        return True


def _represent_text(dumper: yaml.representer.BaseRepresenter, text: str) -> yaml.Node:
    if _is_no_text(text):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")
    # Line breaks that YAML folds, and controls that it refuses, stand escaped in double quotes.
    if not text.isprintable():
        lines = "|" if _is_literal_text(text) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=lines)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text)


def _is_no_text(text: str) -> bool:
    try:
        return text == _MERGE or not isinstance(plain_scalar(text), str)
    except RefusedError:
        return True


def _is_literal_text(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) > 1 and all(line.isprintable() and line == line.strip("\t") for line in lines)


_CoreDumper.add_representer(str, _represent_text)
