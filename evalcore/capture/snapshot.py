"""A bounded copy of a caller's value: what is captured does not change when the caller goes on.

It runs in the caller, so it calls no code of the value's type and its cost has a bound. A small
value is copied, its texts are referenced. A larger one, such as a long conversation, is packed: a
pickle costs a tenth of a copy, and its size is bounded while it is made.
"""

from __future__ import annotations

import pickle
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any, Final
from uuid import UUID

MAX_PARTS: Final = 240
"""Most members of all containers of a value that is copied; more are packed."""
MAX_PACKED_PARTS: Final = 20_000
"""Most members of all containers of a value together."""
MAX_PACKED_BYTES: Final = 400_000
"""Most bytes of a packed value."""
MAX_CHARACTERS: Final = 200_000
"""Most characters of all texts of a value together."""
MAX_DEPTH: Final = 24

_ATOMS: Final = frozenset(
    {int, float, bool, type(None), datetime, date, time, timedelta, Decimal, UUID}
)


class SnapshotError(Exception):
    """A value has too many parts, too much text, or refuses to be read."""


class TooManyPartsError(SnapshotError):
    """A value has more parts than are copied."""


class Unreadable:
    """Stands for a value that is no data: only the name of its type is captured."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name


def snapshot(value: Any) -> Any:
    """Return a copy of containers with their texts and numbers, or a `Packed` one.

    Dataclasses and pydantic models are mappings of their fields, other objects `Unreadable`.
    Raises `SnapshotError`.
    """
    kind = type(value)
    if kind in _ATOMS or (kind is str and len(value) <= MAX_CHARACTERS):
        return value
    left = [MAX_PARTS, MAX_CHARACTERS]
    try:
        if kind is tuple or kind is list:
            return _copied_list(value, left, MAX_DEPTH)
        return _copy(value, left, MAX_DEPTH)
    except TooManyPartsError:
        return _packed(value)


class Packed:
    """A value as it was when it was packed; `copies` are its parts of other than built-in types."""

    __slots__ = ("_copies", "_data")

    def __init__(self, data: bytes, copies: list[Any]) -> None:
        self._data, self._copies = data, copies

    def value(self) -> Any:
        """Return the copy, as `snapshot` makes it of small values; raise `SnapshotError`."""
        value = _Unpacker(BytesIO(self._data), self._copies).load()
        return _copy(value, [MAX_PACKED_PARTS, MAX_CHARACTERS], MAX_DEPTH)


def unpacked(value: Any) -> Any:
    """Return what `snapshot` made, without `Packed`; raise `SnapshotError`."""
    return value.value() if type(value) is Packed else value


def _packed(value: Any) -> Packed:
    pieces = _Pieces()
    packer = _Packer(pieces)
    try:
        packer.dump(value)
    except RecursionError:
        raise SnapshotError("nested too deeply") from None
    return Packed(b"".join(pieces.data), packer.copies)


class _Pieces:
    """The file that a value is packed into; it ends the packing of one that is too large."""

    __slots__ = ("_left", "data")

    def __init__(self) -> None:
        self._left = MAX_PACKED_BYTES
        self.data: list[bytes] = []

    def write(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise SnapshotError("too much text")
        self.data.append(bytes(piece))


class _Packer(pickle.Pickler):
    """Packs built-in types by itself; values of all others are copied, and packed as numbers."""

    def __init__(self, pieces: _Pieces) -> None:
        super().__init__(pieces, 5)
        self.copies: list[Any] = []
        self._left = [MAX_PARTS, MAX_CHARACTERS]

    def reducer_override(self, value: Any) -> Any:
        """Return what stands for a value of another type, without code of that type."""
        if value is _copy_at:
            return NotImplemented
        self._left[0] -= 1
        if self._left[0] < 0:
            raise TooManyPartsError("too many values that are no JSON")
        self.copies.append(_copy(value, self._left, MAX_DEPTH))
        return _copy_at, (len(self.copies) - 1,)


def _copy_at(index: int) -> Any:
    """Stand for a copy in packed data; `_Unpacker` has the copies."""
    raise NotImplementedError(index)


class _Unpacker(pickle.Unpickler):
    def __init__(self, data: BytesIO, copies: list[Any]) -> None:
        super().__init__(data)
        self._copies = copies

    def find_class(self, _module: str, _name: str, /) -> Any:
        """Return what gives copies by their numbers: packed data name nothing else."""
        return self._copies.__getitem__


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
    if depth <= 0:
        raise SnapshotError("nested too deeply")
    if left[0] < 0:
        raise TooManyPartsError("too many parts")
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
    if depth <= 0:
        raise SnapshotError("nested too deeply")
    if left[0] < 0:
        raise TooManyPartsError("too many parts")
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
                raise TooManyPartsError("too many parts")
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
    if kind is Unreadable:
        return value
    if issubclass(kind, str):
        length = str.__len__(value)
        return _copy(str.__getitem__(value, slice(0, length)), left, depth)
    if issubclass(kind, dict):
        return _copied_mapping(value, left, depth)
    for base in (list, tuple, set, frozenset):
        if issubclass(kind, base):
            left[0] -= base.__len__(value)
            if left[0] < 0:
                raise TooManyPartsError("too many parts")
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
