"""JSON that others wrote, read as Python's and JavaScript's own parsers read it.

Halves of surrogate pairs, NaN and Infinity, byte order marks and other charsets than UTF-8 are
read. What cannot be stored is kept by `parse` and replaced by `storable`: programs write half of a
pair into one event of a stream, and the other half into the next.
"""

from __future__ import annotations

import codecs
import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

if TYPE_CHECKING:
    from jsonpath import CompoundJSONPath, JSONPath, JSONPathEnvironment


_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**64 - 1
# Longer numbers are none that Python converts.
_MOST_DIGITS: Final = 4000
HALF: Final = "a character that UTF-8 cannot hold was replaced by U+FFFD"
INFINITE: Final = "NaN or Infinity was replaced by null"

Pairs = Callable[[list[tuple[str, Any]]], dict[str, Any]]


class Storable(NamedTuple):
    """A value that JSON can hold, and notes of what was replaced in it."""

    value: Any
    notes: tuple[str, ...] = ()


def parse(text: bytes | str, charset: str | None = None, pairs: Pairs | None = None) -> Any:
    """Return the value of a JSON text; raise `ValueError` for what is none.

    `charset` is what was declared for the bytes, `pairs` makes the objects. The value may hold
    halves of surrogate pairs, NaN and Infinity: see `storable`.
    """
    if pairs is None:
        try:
            return orjson.loads(text)
        except ValueError:
            pass
    if not isinstance(text, str):
        text = _json_text(text, charset)
    text = text.removeprefix("\ufeff")
    try:
        return json.loads(text, parse_int=_number, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def parse_storable(text: bytes | str) -> Any:
    """Return the value of a JSON text as it can be stored; raise `ValueError` as `parse` does."""
    return storable(parse(text)).value


def decoded(data: bytes, charset: str | None = None) -> str:
    """Return bytes as text, by their byte order mark, the declared charset, or as UTF-8.

    Bytes that are no text become halves of surrogate pairs, which `storable` replaces.
    """
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    if charset is not None:
        try:
            return data.decode(charset)
        except (LookupError, ValueError):
            pass
    return data.decode("utf-8", "surrogateescape")


def storable(value: Any) -> Storable:
    """Return the value with U+FFFD for each half of a surrogate pair and null for NaN.

    The same object if nothing is replaced; two halves that meet in a text become one character.
    """
    notes: dict[str, None] = {}
    clean = _clean(value, notes)
    return Storable(clean, tuple(notes))


def _json_text(data: bytes, charset: str | None) -> str:
    # JSON is written in UTF-8, also where a server declares another charset by default.
    if b"\0" in data[:4] and not data.startswith(tuple(mark for mark, _ in _BOMS)):
        return data.decode(json.detect_encoding(data), "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return decoded(data, charset)


def _number(digits: str) -> float:
    """Return a whole number; as a float where 64 bits do not hold it, as orjson does."""
    number = int(digits) if len(digits) <= _MOST_DIGITS else math.inf
    return number if _SMALLEST <= number <= _LARGEST else float(digits)


def _clean(value: Any, notes: dict[str, None]) -> Any:
    if isinstance(value, str):
        return _clean_text(value, notes)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        notes[INFINITE] = None
        return None
    if isinstance(value, Mapping):
        pairs = [(_clean(name, notes), _clean(inner, notes)) for name, inner in value.items()]
        same = all(n is m and v is w for (n, v), (m, w) in zip(pairs, value.items(), strict=True))
        return value if same else dict(pairs)
    if isinstance(value, list | tuple):
        members = [_clean(member, notes) for member in value]
        return value if all(map(operator.is_, members, value)) else members
    return value


def _clean_text(text: str, notes: dict[str, None]) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if "\ufffd" in clean:
            notes[HALF] = None
        return clean
    return text


_SURROGATE: Final = "surrogate in string"


def json_reason(error: ValueError) -> str:
    """Return what orjson found, with its place.

    JSON may spell half of a surrogate pair, which is no character and cannot be stored as UTF-8.
    """
    text = str(error)
    words, separator, position = text.partition(": line ")
    if separator and words.endswith(_SURROGATE):
        return (
            "half of a surrogate pair (\\ud800 to \\udfff without its other half) is no character: "
            f"write both halves or neither: line {position}"
        )
    return text


def has_equal_keys(value: Any) -> bool:
    """Whether a mapping in a JSON value has two keys that are the same text in JSON."""
    if isinstance(value, Mapping):
        keys = orjson.dumps(dict.fromkeys(value), option=orjson.OPT_NON_STR_KEYS)
        return len(orjson.loads(keys)) < len(value) or any(map(has_equal_keys, value.values()))
    return isinstance(value, list | tuple) and any(map(has_equal_keys, value))


def has_infinite(value: Any) -> bool:
    """Whether a JSON value has a number in it that is NaN or infinite."""
    if isinstance(value, Mapping):
        return any(map(has_infinite, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_infinite, value))
    if isinstance(value, float):
        return not math.isfinite(value)
    if hasattr(value, "model_dump"):  # a pydantic model
        return has_infinite(value.model_dump())
    if is_dataclass(value) and not isinstance(value, type):
        return any(has_infinite(getattr(value, field.name)) for field in fields(value))
    return False


def json_form(value: Any, default: Callable[[Any], Any] | None = None) -> Any:
    """Return a value as JSON holds it, so that a stored one is equal to it.

    `default` is orjson's. Raises `ValueError` for what JSON cannot hold.
    """
    try:
        try:
            data = orjson.dumps(value, default)
        except orjson.JSONEncodeError:
            data = orjson.dumps(value, default, orjson.OPT_NON_STR_KEYS)
            if has_equal_keys(value):
                raise ValueError("a mapping with two keys of one text, as 1 and '1'") from None
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if b"null" in data and has_infinite(value):  # for which orjson writes null
        raise ValueError("a number that is NaN or infinite")
    return orjson.loads(data)


def own_copy(value: Any) -> Any:
    """Return a JSON value with collections of its own.

    The items of a case share the values of the plan, the checks of an item its evidence.
    """
    if isinstance(value, Mapping):
        return {key: own_copy(member) for key, member in value.items()}
    if isinstance(value, list):
        return [own_copy(member) for member in value]
    return tuple(map(own_copy, value)) if isinstance(value, tuple) else value


def texts_in(
    value: Any, place: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the texts in a JSON value, each with its place; names of members are none."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping | list | tuple):
        for key, member in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from texts_in(member, (*place, key))


def plain_value(value: Any) -> Any:
    """Return a value with the JSON form of the models and dataclasses in it.

    Pydantic's models and dataclasses are mappings, members of an enumeration their values, dates
    and times texts of ISO 8601. What has no such form stays as it is.
    """
    if isinstance(value, Enum):
        return plain_value(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {key: plain_value(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(member) for member in value]
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, type):
        return value
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {each.name: plain_value(getattr(value, each.name)) for each in fields(value)}
    return value


def same_json(left: Any, right: Any) -> bool:
    """Return whether two JSON values mean the same: true is not 1, 1 is 1.0, keys have no order."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping):
        return (
            isinstance(right, Mapping)
            and left.keys() == right.keys()
            and all(same_json(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list | tuple):
        return (
            isinstance(right, list | tuple)
            and len(left) == len(right)
            and all(map(same_json, left, right))
        )
    return bool(left == right)


_STEP: Final = re.compile(
    r"""
    \[ \s* (?: (?P<star>\*) | (?P<index>-?\d+)
             | (?P<quoted>"(?:[^"\\]|\\.)*") | '(?P<single>[^']*)' ) \s* \]
    | (?P<key>[^.\[\]]+)
    """,
    re.VERBOSE,
)
_INDEX: Final = re.compile(r"-?[0-9]{1,4000}")


class Wildcard(Enum):
    """The part of a path that stands for every element of a list."""

    ALL = "*"


Part = str | int | Wildcard


class PathSyntaxError(ValueError):
    """A text is not a path; the message says where it stops being one."""


class Unresolved(NamedTuple):
    """A path that leads nowhere: its longest prefix that resolves, and the value there.

    `through_scalar` is true if the path goes on below a text, a number or a boolean, or names a
    key of a list: the value has a type that the path does not fit. It is false for a missing key,
    an index out of range and a path through null.
    """

    partial_path: str
    partial_value: Any
    through_scalar: bool


class Resolved(NamedTuple):
    """The value that a path addresses."""

    value: Any


@lru_cache(maxsize=1024)
def parse_path(text: str) -> tuple[Part, ...]:
    """Return the parts of a path (`items[0].price`, `a.*.b`, `["a.b"]`).

    Raises `PathSyntaxError`.
    """
    parts: list[Part] = []
    position = 0
    while position < len(text):
        if parts and text[position] == ".":
            position += 1
        match = _STEP.match(text, position)
        if match is None or (parts and match["key"] and text[position - 1] != "."):
            raise PathSyntaxError(
                f"path {text[:80]!r}: expected a key, an index or '*' at character {position + 1}"
            )
        parts.append(_part(match))
        position = match.end()
        if position == len(text) - 1 and text[position] == ".":
            raise PathSyntaxError(f"path {text[:80]!r} ends with a dot")
    if not parts:
        raise PathSyntaxError("a path is not empty; leave it out for the whole payload")
    return tuple(parts)


def _part(match: re.Match[str]) -> Part:
    if match["star"] or match["key"] == "*":
        return Wildcard.ALL
    if match["index"]:
        return int(match["index"])
    if match["quoted"]:
        try:
            return str(json.loads(match["quoted"]))
        except ValueError as error:
            raise PathSyntaxError(f"the key {match['quoted'][:80]} is not JSON text") from error
    return str(match["key"] if match["single"] is None else match["single"])


def resolve(
    value: Any, parts: Sequence[Part], walked: tuple[Part, ...] = ()
) -> Resolved | Unresolved:
    """Return the value at a path (`parse_path`); `walked` is the path to `value`.

    With a wildcard it is the flat list of what the rest of the path addresses in each element; one
    element without it makes the path unresolved.
    """
    for number, part in enumerate(parts):
        index = _index_of(part)
        if part is Wildcard.ALL and isinstance(value, list):
            rest = parts[number + 1 :]
            values: list[Any] = []
            for position, element in enumerate(value):
                found = resolve(element, rest, (*walked, position))
                if isinstance(found, Unresolved):
                    return found
                values.extend(found.value if Wildcard.ALL in rest else [found.value])
            return Resolved(values)
        if isinstance(value, Mapping) and str(part) in value:
            value = value[str(part)]
        elif isinstance(value, list) and index is not None and 0 <= index < len(value):
            value = value[index]
        else:
            fits = isinstance(value, Mapping) if index is None else isinstance(value, dict | list)
            fits = fits and part is not Wildcard.ALL
            return Unresolved(_path_text(walked), value, value is not None and not fits)
        walked = (*walked, part)
    return Resolved(value)


def _index_of(part: Part) -> int | None:
    if isinstance(part, str):
        return int(part) if _INDEX.fullmatch(part) else None
    return part if isinstance(part, int) else None


def _path_text(parts: tuple[Part, ...]) -> str:
    """Return parts as a path, the way `parse_path` reads it; "" for none."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[^.\[\]*'\"\s]+", str(part)):
            text += f".{part}" if text else str(part)
        else:
            text += f"[{json.dumps(part, ensure_ascii=False)}]"
    return text


ABSENT: Final = object()


def value_at(value: Any, path: str) -> Any:
    """Return what stands at a path (`lines[0].price`, `lines.0.price`), `ABSENT` for nothing.

    A key that is written like the whole path comes first.
    """
    if isinstance(value, Mapping) and path in value:
        return value[path]
    try:
        found = resolve(value, parse_path(path))
    except PathSyntaxError:
        return ABSENT
    return found.value if isinstance(found, Resolved) else ABSENT


_NAME: Final = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\''
# The time to look for steps grows with the square of the length.
_LONGEST: Final = 1_000
# A selection in brackets is taken as a whole; a step is quoted, a number, or brackets after a dot.
_PART: Final = re.compile(
    rf"(?P<brackets>\[(?:{_NAME}|[^\]\"'])*\])"
    rf"|(?P<dots>\.{{1,2}})(?:(?P<name>{_NAME})|(?P<number>\d+)(?![\w-])|(?=\[))",
    re.DOTALL,
)
_QUOTED: Final = re.compile(_NAME, re.DOTALL)


@lru_cache(maxsize=512)
def compile_json_path(expression: str) -> JSONPath | CompoundJSONPath:
    """Return the compiled expression; raise `jsonpath.JSONPathError` if it is none.

    A quoted step is the name of a member, and so is a number after a dot.
    """
    from jsonpath.exceptions import JSONPathSyntaxError

    environment = _environment()
    try:
        return environment.compile(expression)
    except JSONPathSyntaxError:
        standard = _standard_form(expression) if len(expression) <= _LONGEST else expression
        if standard == expression:
            raise
        return environment.compile(standard)


def _standard_form(expression: str) -> str:
    """Return the expression with quoted and numeric steps in brackets."""

    def bracketed(match: re.Match[str]) -> str:
        if match["dots"] is None:
            return match[0]
        prefix = ".." if match["dots"] == ".." else ""
        if match["name"] is not None:
            return f"{prefix}[{match['name']}]"
        return f"{prefix}['{match['number']}']" if match["number"] is not None else prefix

    begins_with_name = _QUOTED.match(expression) is not None
    return _PART.sub(bracketed, f"$.{expression}" if begins_with_name else expression)


@cache
def _environment() -> JSONPathEnvironment:
    from jsonpath import JSONPathEnvironment

    class Environment(JSONPathEnvironment):
        def getitem(self, obj: Any, key: Any) -> Any:
            # A slice selects elements of an array, and nothing in a string.
            if isinstance(key, slice) and isinstance(obj, str):
                return ()
            return super().getitem(obj, key)

    return Environment()
