"""A bounded copy of a caller's value: what is captured does not change when the caller goes on.

It runs in the caller, so it calls no code of the value's type and its cost has a bound: values
with too many parts are refused, texts are referenced and not copied.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

MAX_PARTS: Final = 240
"""Most members of all containers of a value together."""
MAX_CHARACTERS: Final = 200_000
"""Most characters of all texts of a value together."""
MAX_DEPTH: Final = 24

_ATOMS: Final = frozenset(
    {int, float, bool, type(None), datetime, date, time, timedelta, Decimal, UUID}
)


class SnapshotError(Exception):
    """A value has too many parts, too much text, or refuses to be read."""


class Unreadable:
    """Stands for a value that is no data: only the name of its type is captured."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name


def snapshot(value: Any) -> Any:
    """Return a copy of containers with their texts and numbers; raise `SnapshotError`.

    Dataclasses and pydantic models are mappings of their fields, other objects `Unreadable`.
    """
    kind = type(value)
    if kind in _ATOMS or (kind is str and len(value) <= MAX_CHARACTERS):
        return value
    left = [MAX_PARTS, MAX_CHARACTERS]
    if kind is tuple or kind is list:
        return _copied_list(value, left, MAX_DEPTH)
    return _copy(value, left, MAX_DEPTH)


def _copy(value: Any, left: list[int], depth: int) -> Any:
    kind = type(value)
    if kind is str:
        left[1] -= len(value)
        if left[1] < 0:
            raise SnapshotError("too much text")
        return value
    if kind in _ATOMS:
        return value
    if depth <= 0:
        raise SnapshotError("nested too deeply")
    if kind is dict:
        return _copied_mapping(value, left, depth)
    if kind is list or kind is tuple:
        return _copied_list(value, left, depth)
    return _converted(value, kind, left, depth)


def _copied_mapping(value: dict[Any, Any], left: list[int], depth: int) -> dict[Any, Any]:
    """Return a copy; names are as they are, the thread that writes makes text of them."""
    left[0] -= 1 + dict.__len__(value)
    if left[0] < 0 or depth <= 0:
        raise SnapshotError("too many parts")
    # Another thread may change the mapping while its members are copied.
    copy = dict.copy(value)
    characters = 0
    for name, member in copy.items():
        kind = type(member)
        if kind is str:
            characters += len(member)
        elif kind not in _ATOMS:
            copy[name] = _copy(member, left, depth - 1)
    left[1] -= characters
    if left[1] < 0:
        raise SnapshotError("too much text")
    return copy


def _copied_list(value: Any, left: list[int], depth: int) -> list[Any]:  # noqa: C901  (a call for each message would cost as much as its copy)
    left[0] -= 1 + len(value)
    if left[0] < 0 or depth <= 0:
        raise SnapshotError("too many parts")
    copy, characters, parts = [*value], 0, left[0]
    for index, member in enumerate(copy):
        kind = type(member)
        if kind is str:
            characters += len(member)
        elif kind is dict:
            # Messages of a conversation, without a call for each of them.
            inner = copy[index] = member.copy()
            parts -= 1 + len(inner)
            if parts < 0:
                raise SnapshotError("too many parts")
            for part in inner.values():
                kind = type(part)
                if kind is str:
                    characters += len(part)
                elif kind not in _ATOMS:
                    copy[index] = _copied_mapping(member, left, depth - 1)
                    break
        elif kind not in _ATOMS:
            copy[index] = _copy(member, left, depth - 1)
    left[0] = min(parts, left[0])
    left[1] -= characters
    if left[1] < 0:
        raise SnapshotError("too much text")
    return copy


def _converted(value: Any, kind: type, left: list[int], depth: int) -> Any:
    """Return values of less usual types, with the functions of their base types only."""
    if issubclass(kind, str):
        length = str.__len__(value)
        return _copy(str.__getitem__(value, slice(0, length)), left, depth)
    if issubclass(kind, dict):
        return _copied_mapping(value, left, depth)
    for base in (list, tuple, set, frozenset):
        if issubclass(kind, base):
            left[0] -= base.__len__(value)
            if left[0] < 0:
                raise SnapshotError("too many parts")
            return _copied_list(list(base.__iter__(value)), left, depth)
    if issubclass(kind, int):
        return int.__add__(value, 0)
    if issubclass(kind, float):
        return float.__add__(value, 0.0)
    fields = _fields_of(value, kind)
    return Unreadable(_type_name(kind)) if fields is None else _copied_mapping(fields, left, depth)


def _type_name(kind: type) -> str:
    name = type.__getattribute__(kind, "__name__")
    return name[:80] if type(name) is str else "object"


def _fields_of(value: Any, kind: type) -> dict[Any, Any] | None:
    """Return the fields of a dataclass or a pydantic model, as they stand in its `__dict__`."""
    for marker in ("__dataclass_fields__", "__pydantic_fields__"):
        try:
            names = type.__getattribute__(kind, marker)
        except AttributeError:
            continue
        members = object.__getattribute__(value, "__dict__")
        if type(names) is dict and type(members) is dict:
            return {name: member for name, member in members.items() if name in names}
    return None
