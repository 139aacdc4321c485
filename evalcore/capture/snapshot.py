"""A bounded copy of a caller's value: what is captured does not change when the caller goes on.

It runs in the caller, so its cost has a bound, and it calls no code of the value's type. Texts and
numbers are referenced; anything else is copied as JSON, by orjson. What JSON lacks is text.
"""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

import orjson

MAX_MEMBERS: Final = 20_000
"""Most members of all containers of a value together."""
MAX_CHARACTERS: Final = 200_000
"""Most characters of all texts of a value together."""
MAX_OBJECTS: Final = 1_000
"""Most values of a value that are neither text, number, mapping nor list."""
# Integers are none: JSON may lack them.
_ATOMS: Final = frozenset({float, bool, type(None)})
_OPTIONS: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS
_COUNTED: Final[tuple[type[Any], ...]] = (str, dict, list, tuple)


class SnapshotError(Exception):
    """A value has too many parts, too much text, or is nested too deeply."""


def snapshot(value: Any) -> tuple[Any, int]:
    """Return a text or a number as it is, a copy of any other value as the bytes of its JSON.

    Beside it about the number of bytes that are kept from being freed. Dataclasses and pydantic
    models are mappings of their fields, other objects the names of their types in `<…>`. Raises
    `SnapshotError`.
    """
    kind = type(value)
    if kind is str and len(value) <= MAX_CHARACTERS:
        return value, len(value)
    if kind in _ATOMS:
        return value, 0
    data = _json(value)
    return data, len(data)


def call_snapshot(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, int]:
    """Return a copy of what a function is called with, and its size; raise `SnapshotError`.

    Texts and numbers need no copy, nor do the containers: of `*args` and `**kwargs` a function has
    its own.
    """
    size = 0
    for value in (*arguments, *keywords.values()) if keywords else arguments:
        if type(value) is str:
            size += len(value)
        elif type(value) not in _ATOMS:
            break
    else:
        if size > MAX_CHARACTERS:
            raise SnapshotError("too much text")
        return (arguments, keywords), size
    data = _json((arguments, keywords))
    return data, len(data)


def json_value(copy: Any) -> Any:
    """Return the JSON value of what `snapshot` made; halves of surrogate pairs become U+FFFD."""
    from evalcore.jsonvalues import parse_storable, storable

    return parse_storable(copy) if type(copy) is bytes else storable(copy).value


def _json(value: Any) -> bytes:
    bounds = _Bounds()
    try:
        bounds.take(value)
        return orjson.dumps(value, bounds.plain, _OPTIONS)
    except TypeError as error:  # a long integer, half of a surrogate pair, a tuple as a name
        if isinstance(error.__cause__, SnapshotError):
            raise error.__cause__ from None
    try:
        return json.dumps(value, default=_Bounds().plain, skipkeys=True).encode()
    except RecursionError:
        raise SnapshotError("nested too deeply") from None


class _Bounds:
    """How much more of a value is copied."""

    __slots__ = ("characters", "members", "objects")

    def __init__(self) -> None:
        self.members, self.characters, self.objects = MAX_MEMBERS, MAX_CHARACTERS, MAX_OBJECTS

    def take(self, value: Any) -> None:
        """Count the members and the texts of a value before it is copied."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            kind = type(each)
            if kind not in _COUNTED:  # the usual types without a search
                kind = next((base for base in _COUNTED if issubclass(kind, base)), object)
            if kind is str:
                self.characters -= str.__len__(each)
                if self.characters < 0:
                    raise SnapshotError("too much text")
            elif kind is not object:
                self.members -= kind.__len__(each)
                if self.members < 0:
                    raise SnapshotError("too many members")
                waiting += dict.values(each) if kind is dict else kind.__iter__(each)

    def plain(self, value: Any) -> Any:
        """Return what JSON has for a value of another type, by functions of built-in types only."""
        self.objects -= 1
        if self.objects < 0:
            raise SnapshotError("too many objects")
        kind = type(value)
        if kind in {timedelta, Decimal, UUID}:
            return str(value)
        for moment in (datetime, date, time):
            if issubclass(kind, moment):
                return moment.isoformat(value)
        for base in (tuple, set, frozenset):
            if issubclass(kind, base):
                return self._taken([*base.__iter__(value)])
        if issubclass(kind, float):
            return float.__add__(value, 0.0)
        if issubclass(kind, Enum):
            return value.value
        names = _field_names(kind)
        if names is None:
            return f"<{type.__getattribute__(kind, '__name__')}>"
        fields = object.__getattribute__(value, "__dict__")
        return self._taken({name: member for name, member in fields.items() if name in names})

    def _taken(self, value: Any) -> Any:
        self.take(value)
        return value


def _field_names(kind: type) -> frozenset[str] | None:
    """Return the names of the fields of a dataclass or a pydantic model; None for other types."""
    if not type.__getattribute__(kind, "__dictoffset__"):
        return None  # its values have no `__dict__`
    for marker in ("__dataclass_fields__", "__pydantic_fields__"):
        try:
            names = type.__getattribute__(kind, marker)
        except AttributeError:
            continue
        if type(names) is dict:
            return frozenset(names)
    return None
