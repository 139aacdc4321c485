"""Plain YAML in one pass: values are built from the parser's events, without nodes between.

Most files have no anchors, tags or merge keys. They are read here in a third of the time that
PyYAML's composer and constructor take, and the depth is checked on the way; a file that has any of
those, or a mistake, is left to PyYAML, which knows what to say about it.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import yaml

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
