"""YAML and JSON: read safely, with the line of everything in them, and written."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

import jiter
import orjson
import yaml

from evalcore.declared.parameters import snake_case
from evalcore.errors import LoadError, Problem
from evalcore.jsonvalues import INFINITE, Storable, parse, storable
from evalcore.wording import Loc, Locate, path_text


class Renames:
    """Remembers how each key was written, so that mistakes have its line."""

    def __init__(self) -> None:
        self._written: dict[Loc, str] = {}

    def read(self, raw: Any, keys: Iterable[str], loc: Loc) -> Any:
        """Return the mapping with those of its keys renamed that `keys` have in snake_case only.

        A key that is there in both forms stays: the check of the keys does not know it.
        """
        if not isinstance(raw, Mapping):
            return raw
        names = set(keys)
        renamed: dict[Any, Any] = {}
        for key, value in raw.items():
            snake = snake_case(key) if isinstance(key, str) and key not in names else key
            if snake != key and snake in names and snake not in raw and snake not in renamed:
                self._written[(*loc, snake)] = key
                renamed[snake] = value
            else:
                renamed[key] = value
        return renamed

    def locate(self, inner: Locate) -> Locate:
        """Return the function that finds the lines of renamed paths."""

        def find(loc: Loc) -> int | None:
            written = [self._written.get((*loc[:end], part), part) for end, part in enumerate(loc)]
            return inner(tuple(written))

        return find


_SEPARATORS: Final = ("\x85", "\u2028", "\u2029")
_PRIVATE_USE: Final = range(0xE000, 0xF900)
NOTHING_HIDDEN: Final[Mapping[int, str]] = {}


def hide_separators(text: str) -> tuple[str, Mapping[int, str]]:
    """Return YAML with a character for each separator, and what each of those stands for.

    The stand-ins occur in the text neither as such nor as escapes.
    """
    if not any(each in text for each in _SEPARATORS):
        return text, NOTHING_HIDDEN
    escapes = text.lower()
    free = (code for code in _PRIVATE_USE if chr(code) not in text and f"{code:04x}" not in escapes)
    hidden = dict(zip(free, _SEPARATORS, strict=False))
    return text.translate({ord(each): code for code, each in hidden.items()}), hidden


def show_separators(value: Any, hidden: Mapping[int, str]) -> Any:
    """Return a value that was read, with the separators in its texts."""
    if isinstance(value, str):
        return value.translate(hidden)
    if isinstance(value, list):
        return [show_separators(member, hidden) for member in value]
    if isinstance(value, dict):
        return {
            show_separators(key, hidden): show_separators(member, hidden)
            for key, member in value.items()
        }
    return value


_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ESCAPE: Final = re.compile(
    r"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
# As long as a pair, so that positions stay.
_STAND_IN: Final = r"\\ufffd\\ufffd"


def join_surrogate_pairs(text: str, loader: Any) -> str:
    r"""Return YAML with each escaped pair in double quotes as one escape (`\U0001f600`).

    Other texts, where a backslash is only a backslash, stay, and so does what is no YAML.
    """
    if not _PAIR.search(text):
        return text
    parts: list[str] = []
    end = 0
    try:
        events: Any = yaml.parse(_PAIR.sub(_STAND_IN, text), Loader=loader)
        for event in events:
            if isinstance(event, yaml.ScalarEvent) and event.style == '"':
                # Marks are there: the text is read from a string.
                start, stop = (mark.index for mark in (event.start_mark, event.end_mark) if mark)
                parts += text[end:start], _ESCAPE.sub(_joined, text[start:stop])
                end = stop
    except (yaml.YAMLError, RecursionError):
        # The reader that follows says what is wrong behind the last pair.
        pass
    return "".join((*parts, text[end:]))


def _joined(escape: re.Match[str]) -> str:
    if escape["high"] is None:
        return escape[0]
    high, low = int(escape["high"], 16), int(escape["low"], 16)
    return f"\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"


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
MAX_VALUES: Final = 5_000_000
MIN_INT, MAX_INT = -(2**63), 2**64 - 1

# YAML 1.2's core schema, and merge keys: the tag, its plain scalars, how they may begin.
CORE_SCHEMA: Final = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
    ("null", r"^(?:~|null|Null|NULL|)$", ("~", "n", "N", "")),
    ("merge", r"^(?:<<)$", "<"),
)
_PATTERNS: Final = {tag: re.compile(pattern) for tag, pattern, _ in CORE_SCHEMA}
_MAYBE_SPECIAL: Final = frozenset(first for *_, firsts in CORE_SCHEMA for first in firsts)
_BASES: Final = {"0o": 8, "0x": 16}
# What looks like an anchor, a tag or a merge key; found beforehand, nothing is read twice.
_HARDLY_PLAIN: Final = re.compile(r"(?:^|[\s\[{,])(?:&[^\s&]|![\w!]|<<[ \t]*:)")
_COLLECTIONS: Final = (list, dict)
_STARTS: Final = {yaml.SequenceStartEvent: list, yaml.MappingStartEvent: dict}
_ENDS: Final = (yaml.SequenceEndEvent, yaml.MappingEndEvent)

try:
    from yaml._yaml import CParser as _Parser
except ImportError:  # PyYAML without libyaml
    _Parser = None  # type: ignore[assignment,misc,unused-ignore]


class NotPlainError(Exception):
    """The text has something that only a whole YAML loader understands, or a mistake."""


class TooManyValuesError(Exception):
    """The text holds more values than `MAX_VALUES`."""


class _NoKey:
    """In place of a mapping's key that has not been read yet."""


_NO_KEY: Final = _NoKey()


def read_plain_yaml(text: str) -> Any:
    """Return the one document of the text, or raise `NotPlainError`.

    The value is the one that `CoreLoader` builds. Not plain are anchors, tags, merge keys, keys
    that are no scalars or are written twice, infinite and too large numbers, more than `MAX_DEPTH`
    levels, more than one document, and text that is no YAML. Raises `TooManyValuesError`, too.
    """
    if _Parser is None or _HARDLY_PLAIN.search(text):
        raise NotPlainError
    try:
        return _read(_Parser(text))
    except yaml.YAMLError as error:
        raise NotPlainError from error


class _Builder:
    """Puts the values of events into the collections that are open."""

    __slots__ = ("_innermost", "_key", "_opened", "_outside")

    def __init__(self) -> None:
        self._outside: list[Any] = []
        self._innermost: Any = self._outside
        self._key: Any = _NO_KEY
        self._opened: list[Any] = []

    def put(self, value: Any) -> None:
        """Put a value where the next one belongs: into a list, or as key or value."""
        innermost = self._innermost
        if type(innermost) is list:
            innermost.append(value)
        elif self._key is not _NO_KEY:
            innermost[self._key] = value
            self._key = _NO_KEY
        elif type(value) in _COLLECTIONS or value in innermost:
            raise NotPlainError
        else:
            self._key = value

    def open(self, collection: Any) -> None:
        """Put a collection there; what follows belongs into it."""
        if len(self._opened) >= MAX_DEPTH:
            raise NotPlainError
        self.put(collection)
        self._opened.append(self._innermost)
        self._innermost = collection

    def close(self) -> None:
        """End the innermost collection."""
        self._innermost = self._opened.pop()

    @property
    def document(self) -> Any:
        """The one document; raises `NotPlainError` if there are several."""
        if len(self._outside) > 1:
            raise NotPlainError
        return self._outside[0] if self._outside else None


def _read(parser: Any) -> Any:
    following, builder = parser.get_event, _Builder()
    put = builder.put
    values = 0
    while (kind := type(event := following())) is not yaml.StreamEndEvent:
        values += 1
        if values > MAX_VALUES:
            raise TooManyValuesError
        if kind is yaml.ScalarEvent:
            if event.anchor is not None or event.tag is not None:
                raise NotPlainError
            value = event.value
            plain = not event.style and value[:1] in _MAYBE_SPECIAL
            put(_special(value) if plain else value)
        elif (make := _STARTS.get(kind)) is not None:
            if event.anchor is not None or event.tag is not None:
                raise NotPlainError
            builder.open(make())
        elif kind in _ENDS:
            builder.close()
        elif kind is yaml.AliasEvent:
            raise NotPlainError
    return builder.document


def _special(text: str) -> Any:
    """Return what a plain scalar means that begins like a number, a truth value or null."""
    first = text[:1]
    if first in "tTfF" and first:
        return text.lower() == "true" if _PATTERNS["bool"].match(text) else text
    if first in {"", "~", "n", "N"}:
        return None if _PATTERNS["null"].match(text) else text
    if first == "<":
        if text == "<<":
            raise NotPlainError
        return text
    if _PATTERNS["int"].match(text):
        return _integer(text)
    return _decimal(text) if _PATTERNS["float"].match(text) else text


def _integer(text: str) -> int:
    base = _BASES.get(text[:2], 10)
    try:
        number = int(text[2:] if base != 10 else text, base)
    except ValueError as error:
        raise NotPlainError from error
    if not MIN_INT <= number <= MAX_INT:
        raise NotPlainError
    return number


def _decimal(text: str) -> float:
    if text[-1] not in "0123456789.":  # infinite, or none
        raise NotPlainError
    number = float(text)
    if math.isinf(number):
        raise NotPlainError
    return whole_number(text, number)


def whole_number(text: str, number: float) -> float:
    """Return the integer that a text such as `1e3` means; any other number as it is.

    Above 2⁵³ it stays a float: not every integer has a float there, and floats are written so.
    """
    is_whole = "e" in text.lower() and number.is_integer() and abs(number) <= 2**53
    return int(number) if is_whole else number


_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s\[\]{}:,"]+')


class _Lines:
    """A list or mapping: its line, and its members: a scalar's line, or `_Lines`.

    A mapping's members are pairs of the key's line and the value's. Nodes of PyYAML take five times
    the memory.
    """

    __slots__ = ("line", "members")

    def __init__(self, line: int, members: list[Any] | dict[str, Any]) -> None:
        self.line = line
        self.members = members


def yaml_locator(text: str, loader: Any) -> Locate:
    """Return a function from a path to its line (from 1); the text is read at the first call.

    Of a path that does not exist it gives the line of the deepest part that does; None if the text
    is not valid.
    """
    read: list[_Lines | int | None] = []

    def locate(loc: Loc) -> int | None:
        if not read:
            try:
                read.append(_read_yaml(yaml.parse(text, Loader=loader)))
            except yaml.YAMLError:
                read.append(None)
        return None if read[0] is None else _line_of(read[0], loc)

    return locate


def _line_of(node: _Lines | int, loc: Loc) -> int:
    line = node if isinstance(node, int) else node.line
    for part in loc:
        if isinstance(node, int):
            break
        members = node.members
        if isinstance(members, dict):
            if str(part) not in members:
                break
            line, node = members[str(part)]
        elif isinstance(part, int) and part < len(members):
            node = members[part]
            line = node if isinstance(node, int) else node.line
        else:
            break
    return line


class _NodeLines:
    """Puts the lines of nodes into the collections that are open, as they stand in the text."""

    def __init__(self) -> None:
        self.outside = _Lines(1, [])
        self._opened = [self.outside]
        self._keys: list[tuple[str, int] | None] = [None]

    @property
    def wants_key(self) -> bool:
        """Whether the next scalar is the key of a mapping."""
        return isinstance(self._opened[-1].members, dict) and self._keys[-1] is None

    def put(self, node: _Lines | int, key: str, line: int) -> None:
        """Put a node where the next one belongs; as a key it is `key` at `line`."""
        members = self._opened[-1].members
        if isinstance(members, list):
            members.append(node)
        elif (name := self._keys[-1]) is None:
            self._keys[-1] = (key, line)
        else:
            members[name[0]] = (name[1], node)
            self._keys[-1] = None

    def open(self, node: _Lines) -> None:
        """Put what follows into a collection."""
        self._opened.append(node)
        self._keys.append(None)

    def close(self) -> None:
        """End the innermost collection."""
        self._opened.pop()
        self._keys.pop()

    @property
    def document(self) -> _Lines | int | None:
        """The first node of all."""
        members = self.outside.members
        return members[0] if isinstance(members, list) and members else None


def _read_yaml(events: Iterable[Any]) -> _Lines | int | None:
    """Return the lines of the first document that the parser's events tell of."""
    reader, anchors = _NodeLines(), dict[str, Any]()
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            reader.close()
        elif isinstance(event, yaml.DocumentEndEvent):
            break
        elif isinstance(event, yaml.NodeEvent):
            mark: Any = event.start_mark
            line = int(mark.line) + 1
            node: Any = line
            is_collection = isinstance(event, yaml.CollectionStartEvent)
            if is_collection:
                node = _Lines(line, {} if isinstance(event, yaml.MappingStartEvent) else [])
            if isinstance(event, yaml.AliasEvent):
                node = anchors.get(str(event.anchor), line)
            elif event.anchor:
                anchors[event.anchor] = node
            reader.put(node, str(getattr(event, "value", "")), line)
            if is_collection:
                reader.open(node)
    return reader.document


def json_locator(text: str) -> Locate:
    """Return the same for a JSON text that is known to be valid."""
    read: list[_Lines | int | None] = []

    def locate(loc: Loc) -> int | None:
        if not read:
            read.append(_read_json(text))
        return None if read[0] is None else _line_of(read[0], loc)

    return locate


def _read_json(text: str) -> _Lines | int | None:
    reader = _NodeLines()
    line, end = 1, 0
    for token in _JSON_TOKEN.finditer(text):
        line += text.count("\n", end, token.start())
        end = token.start()
        word = token[0]
        if word in {"]", "}"}:
            reader.close()
        elif word in {"[", "{"}:
            node = _Lines(line, [] if word == "[" else {})
            reader.put(node, "", line)
            reader.open(node)
        elif word not in {",", ":"}:
            reader.put(line, json.loads(word) if reader.wants_key else "", line)
    return reader.document


try:
    from yaml import CSafeLoader as _BaseLoader
except ImportError:  # PyYAML without libyaml: slower, same rules
    from yaml import SafeLoader as _BaseLoader  # type: ignore[assignment,unused-ignore]

MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_EXPANDED_NODES = 5_000_000
# PyYAML's nodes take ten times the memory of the values that are made of them.
MAX_COMPOSED_EVENTS = 2_500_000
MAX_JSON_MARKS = 10_000_000
_LOOKED_AT = 8192
_PIECE_BYTES = 1 << 20
_COMPRESSED: Final = (".gz", ".zst", ".bz2", ".xz", ".zip")
_SPREADSHEETS: Final = (".xlsx", ".xlsm", ".xls", ".ods")

TOO_LARGE: Final = "a number of more than 64 bits; write it in quotes if it is meant as text"
_TOO_MANY = "holds too many values for one document; use JSONL or Parquet, which are streamed"
_NOT_STRICT: Final = (b"\\u", b"NaN", b"Infinity")
_NO_NUMBER = "not a number (or one of too many digits)"


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed file: its value, and how to find the line of any path into it."""

    file: str
    value: Any
    sha256: str
    locate: Locate


class RefusedError(Exception):
    """A rule of this page is broken at a line of the file that is being read."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class _NotYamlError(RefusedError):
    """The syntax of YAML is broken."""


_MERGE = "tag:yaml.org,2002:merge"


class CoreLoader(_BaseLoader):
    """SafeLoader with YAML 1.2's core schema; duplicate keys are refused."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Build one mapping; `RefusedError` names the line of a key that is written twice."""
        pairs = node.value
        mapping = super().construct_mapping(node, deep)
        # PyYAML replaces `node.value` when it resolves a merge key, which may hide a duplicate.
        if len(mapping) != len(pairs) or node.value is not pairs:
            self._refuse_duplicates([key for key, _ in pairs if key.tag != _MERGE])
        return mapping

    def _refuse_duplicates(self, keys: Sequence[yaml.Node]) -> None:
        first: dict[Any, int] = {}
        for key in keys:
            name = self.construct_object(key, deep=True)
            line = key.start_mark.line + 1
            if name in first:
                raise RefusedError(line, f"duplicate key {name!r} (first at line {first[name]})")
            first[name] = line

    def core_int(self, node: yaml.ScalarNode) -> int:
        """Build a number as YAML 1.2 writes it; JSON holds 64 bits of it."""
        text = str(node.value)
        base = {"0o": 8, "0x": 16}.get(text[:2], 10)
        try:
            number = int(text[2:] if base != 10 else text, base)
        except ValueError as error:
            raise RefusedError(node.start_mark.line + 1, _NO_NUMBER) from error
        if not MIN_INT <= number <= MAX_INT:
            raise RefusedError(node.start_mark.line + 1, TOO_LARGE)
        return number

    def core_float(self, node: yaml.ScalarNode) -> float:
        """Build a number as YAML 1.2 writes it; `1e3` is the whole number 1000."""
        text = str(node.value)
        if text.lower().endswith(("inf", "nan")):
            raise RefusedError(node.start_mark.line + 1, f"{text} is not a number JSON can hold")
        try:
            number = float(text)
        except ValueError as error:
            raise RefusedError(node.start_mark.line + 1, _NO_NUMBER) from error
        if math.isinf(number):
            raise RefusedError(node.start_mark.line + 1, TOO_LARGE)
        return whole_number(text, number)

    def core_bool(self, node: yaml.ScalarNode) -> bool:
        """Build `true` or `false`."""
        text = str(node.value).lower()
        if text not in {"true", "false"}:
            raise RefusedError(node.start_mark.line + 1, "not true or false")
        return text == "true"

    def refuse_tag(self, node: yaml.Node) -> NoReturn:
        """Refuse what YAML 1.1 has beside the core schema and JSON does not hold."""
        tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
        line = node.start_mark.line + 1
        raise RefusedError(line, f"the tag {tag} is not supported; write a plain value")


for _tag, _pattern, _first in CORE_SCHEMA:
    CoreLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first)
    )
for _name, _construct in (
    ("int", CoreLoader.core_int),
    ("float", CoreLoader.core_float),
    ("bool", CoreLoader.core_bool),
):
    CoreLoader.add_constructor(f"tag:yaml.org,2002:{_name}", _construct)
for _name in ("binary", "timestamp", "omap", "pairs", "set"):
    CoreLoader.add_constructor(f"tag:yaml.org,2002:{_name}", CoreLoader.refuse_tag)


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


def read_document(
    path: Path, name: str | None = None, loader: type[CoreLoader] = CoreLoader
) -> Document:
    """Read a YAML or (`*.json`) JSON file; raise `LoadError` naming the place of what is wrong.

    `name` is the file's name in messages, the path by default; `loader` reads YAML.
    """
    file = name or str(path)
    is_json = path.suffix.lower() == ".json"
    return parse_document(read_bytes(path, file), file, is_json=is_json, loader=loader)


def read_bytes(path: Path, name: str) -> bytes:
    """Return the file's bytes; raise `LoadError` if it cannot be read or is too large."""
    try:
        if path.is_dir():
            raise_problem(name, None, "is a folder; name a suite file")
        size = path.stat().st_size
        data = b"" if size > MAX_FILE_BYTES else _read_at_most(path, MAX_FILE_BYTES + 1)
        if max(size, len(data)) > MAX_FILE_BYTES:
            limit = MAX_FILE_BYTES // 2**20
            raise_problem(
                name, None, f"larger than {limit} MiB; use JSONL or Parquet, which are streamed"
            )
        return data
    except FileNotFoundError:
        raise_problem(name, None, "no such file")
    except OSError as error:
        raise_problem(name, None, f"cannot be read: {error.strerror}")


def _read_at_most(path: Path, most: int) -> bytes:
    """Return what a file holds, or its start: a device may never end."""
    if path.is_file():
        return path.read_bytes()
    data = bytearray()
    with path.open("rb") as file:
        while len(data) < most and (piece := file.read(_PIECE_BYTES)):
            data += piece
    return bytes(data)


def parse_document(
    data: bytes, file: str, *, is_json: bool = False, loader: type[CoreLoader] = CoreLoader
) -> Document:
    """Parse one document; raise `LoadError` with the line of the first thing that is wrong."""
    text = decode(data, file)
    if not text.strip():
        raise_problem(file, None, "is empty")
    yaml_text, hidden = text, NOTHING_HIDDEN
    if not is_json:
        yaml_text, hidden = hide_separators(join_surrogate_pairs(text, CoreLoader))
    try:
        value, is_json = _parsed(data, yaml_text, is_json=is_json, loader=loader)
    except RefusedError as error:
        raise_problem(file, error.line, error.message)
    if hidden and not is_json:
        value = show_separators(value, hidden)
    locate = json_locator(text) if is_json else yaml_locator(yaml_text, CoreLoader)
    return Document(file, value, hashlib.sha256(data).hexdigest(), locate)


def decode(data: bytes, file: str) -> str:
    """Return UTF-8 text (a byte-order mark is dropped); raise `LoadError` with the line."""
    if file.lower().endswith(_SPREADSHEETS):
        raise_problem(file, None, "is a spreadsheet; save it as CSV, with a test in each row")
    if file.lower().endswith(".tsv"):
        raise_problem(file, None, "rename it to *.csv, where columns may be separated by tabs")
    if file.lower().endswith(".ndjson"):
        raise_problem(file, None, "rename it to *.jsonl, which has a JSON value in each line")
    if file.lower().endswith(_COMPRESSED):
        raise_problem(file, None, "is compressed; name the unpacked file")
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
    except ValueError:
        if any(mark in data for mark in _NOT_STRICT):
            with suppress(ValueError):
                return storable(parse(data.decode(), pairs=_unique))
        raise


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
    is_long = b"000" in shape and any(part in shape for part in _LONG_SHAPES)
    return _too_large_at(value, ()) if is_long else None


def as_json(value: Any) -> Any:
    """Return a read value as JSON holds it: YAML's keys that are no text become text."""
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))


def _parsed(data: bytes, text: str, *, is_json: bool, loader: type[CoreLoader]) -> tuple[Any, bool]:
    """Return the value, and whether it was read as JSON; raise `RefusedError`."""
    if is_json:
        return _parse_json(data), True
    try:
        return _parse_yaml(text, loader), False
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
        raise RefusedError(json_locator(data.decode("utf-8-sig"))(loc), TOO_LARGE)
    return value


def _authored(data: bytes) -> Any:
    """Return the value of a document; a NaN in it is a mistake."""
    value, notes = parse_row(data)
    return parse_json(data) if INFINITE in notes else value


# All digits as 0 and E as e: a part is found in a small share of a regular expression's time.
_SHAPES: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_SHAPES: Final = (b"0e000", b"0e+000", b"0" * 19)


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


def _parse_yaml(text: str, loader: type[CoreLoader]) -> Any:
    try:
        with collector_paused():
            with suppress(NotPlainError):
                return read_plain_yaml(text)
            _check_structure(text)
            return yaml.load(text, Loader=loader)  # noqa: S506  (a SafeLoader)
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
    except RecursionError as error:
        raise RefusedError(None, f"nested deeper than {MAX_DEPTH} levels") from error
    except TooManyValuesError as error:
        raise RefusedError(None, _TOO_MANY) from error


def _check_structure(text: str) -> None:  # noqa: C901  (one loop over events)
    """Refuse what would exhaust the C stack (depth) or memory (aliases) before it is built."""
    depth, size, opened = 0, 0, list[tuple[str | None, int]]()
    sizes: dict[str, int] = {}
    events: Any = yaml.parse(text, Loader=CoreLoader)
    for number, event in enumerate(events):
        kind = type(event)
        if number > MAX_COMPOSED_EVENTS:
            raise RefusedError(None, _TOO_MANY)
        if kind is yaml.ScalarEvent:
            size += 1
            if event.anchor:
                sizes[event.anchor] = 1
        elif issubclass(kind, yaml.CollectionStartEvent):
            depth += 1
            size += 1
            opened.append((event.anchor, size))
            if depth > MAX_DEPTH:
                message = f"nested deeper than {MAX_DEPTH} levels"
                raise RefusedError(event.start_mark.line + 1, message)
        elif issubclass(kind, yaml.CollectionEndEvent):
            depth -= 1
            anchor, before = opened.pop()
            if anchor:
                sizes[anchor] = size - before + 1
        elif kind is yaml.AliasEvent:
            if any(anchor == event.anchor for anchor, _ in opened):
                message = f"the alias *{event.anchor} contains itself"
                raise RefusedError(event.start_mark.line + 1, message)
            size += sizes.get(event.anchor, 1)
            if size > MAX_EXPANDED_NODES:
                message = f"aliases expand to more than {MAX_EXPANDED_NODES} values"
                raise RefusedError(event.start_mark.line + 1, message)


try:
    from yaml import CSafeDumper as _BaseDumper
except ImportError:  # PyYAML without libyaml: slower, the same text
    from yaml import SafeDumper as _BaseDumper  # type: ignore[assignment,unused-ignore]

_NUMBERED: Final = "\\U"


def yaml_text(content: Mapping[str, Any]) -> str:
    """Return the text of a file, its keys in their order."""
    text = _dumped(content, _CoreDumper)
    # libyaml writes an emoji as its number, PyYAML's own emitter, ten times slower, as it is.
    return _dumped(content, _WideDumper) if _NUMBERED in text else text


def _dumped(content: Mapping[str, Any], dumper: type[Any]) -> str:
    text: str = yaml.dump(content, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


class _CoreDumper(_BaseDumper):
    """Quotes each text that YAML 1.2's core schema or YAML 1.1 reads as something else."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write equal values each time: anchors are hard to read."""
        return True


class _WideDumper(yaml.SafeDumper):
    """The same for texts with characters beyond U+FFFF."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write equal values each time: anchors are hard to read."""
        return True


def _represent_text(dumper: yaml.representer.BaseRepresenter, text: str) -> yaml.Node:
    resolvers: Any = CoreLoader.yaml_implicit_resolvers
    patterns = (*resolvers.get(text[:1], ()), *resolvers.get(None, ()))
    if any(pattern.match(text) for _, pattern in patterns):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'")
    # Line breaks that YAML folds, and controls that it refuses, stand escaped in double quotes.
    if not text.isprintable():
        lines = "|" if _is_literal_text(text) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=lines)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text)


def _is_literal_text(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) > 1 and all(line.isprintable() and line == line.strip("\t") for line in lines)


_CoreDumper.add_representer(str, _represent_text)
_WideDumper.add_representer(str, _represent_text)
