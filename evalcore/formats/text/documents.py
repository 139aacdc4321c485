"""Read foreign YAML and JSON safely, with the line of everything in it.

YAML is read with the core schema of YAML 1.2 (docs/decisions/0003): `yes` and `on` are text, and so
are dates and `12:30`. Duplicate keys, deep nesting, alias bombs and tags are refused. Positions are
found by reading a second time, and only when something is wrong.
"""

from __future__ import annotations

import gc
import hashlib
import math
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, NoReturn

import jiter
import orjson
import yaml

from evalcore.errors import LoadError, Problem
from evalcore.formats.text.line_separators import NOTHING_HIDDEN, hide_separators, show_separators
from evalcore.formats.text.plain_yaml import (
    CORE_SCHEMA,
    MAX_DEPTH,
    MAX_INT,
    MIN_INT,
    NotPlainError,
    TooManyValuesError,
    read_plain_yaml,
    whole_number,
)
from evalcore.formats.text.positions import json_locator, yaml_locator
from evalcore.formats.text.surrogate_pairs import join_surrogate_pairs
from evalcore.formats.text.syntax_reasons import json_reason, yaml_reason
from evalcore.jsonvalues import INFINITE, Storable, parse, storable
from evalcore.mistakes.locations import Loc, Locate
from evalcore.mistakes.wording import path_text

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
