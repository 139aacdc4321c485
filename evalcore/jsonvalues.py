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
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import orjson

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
