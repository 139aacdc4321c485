"""A bounded copy of a caller's value: what is captured does not change when the caller goes on.

It runs in the caller, so it calls no code of the value's type and its cost has a bound. Texts and
numbers are referenced, containers are copied. Lists of numbers, texts and flat mappings, such as a
conversation, are copied by functions of the interpreter, without a step of Python for each member.
Other values of many members are packed: a pickle costs a tenth of a copy, and its size is bounded
while it is made.
"""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from io import BytesIO
from itertools import chain
from typing import Any, Final
from uuid import UUID

from evalcore.capture.copy_budget import (
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_PACKED_BYTES,
    MAX_PACKED_PARTS,
    MAX_PARTS,
    MEMBER_BYTES,
    CopyBudget,
    SnapshotError,
    TooManyPartsError,
)

ATOMS: Final = frozenset(
    {int, float, bool, type(None), datetime, date, time, timedelta, Decimal, UUID}
)
"""Types, other than text, whose values cannot change."""
_FLAT: Final = ATOMS | {str}
# Texts that are too long are noticed before more of the list is copied.
_COPIED_AT_ONCE: Final = 64
# Longer texts are cheaper to reference than to pack.
_SHORT_TEXT: Final = 500
_MARSHALLED: Final = frozenset({str, int, float, bool, type(None)})
_REMEMBERED_TYPES: Final = 256


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
    return sized_snapshot(value)[0]


def sized_snapshot(value: Any) -> tuple[Any, int]:
    """Return what `snapshot` does, and about how many bytes it keeps from being freed."""
    kind = type(value)
    if kind is str and len(value) <= MAX_CHARACTERS:
        return value, len(value)
    if kind in ATOMS:
        return value, 0
    budget = CopyBudget()
    try:
        return _copy(value, budget, MAX_DEPTH), budget.size
    except TooManyPartsError:
        packed = _packed(value)
        return packed, packed.size


def call_snapshot(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Any, Any, int]:
    """Return copies of what a function is called with, and their size; raise `SnapshotError`.

    Texts and numbers need no copy, nor do the containers: of `*args` and `**kwargs` a function has
    its own.
    """
    size = 0
    for value in (*arguments, *keywords.values()) if keywords else arguments:
        if type(value) is str:
            size += len(value)
        elif type(value) not in ATOMS:
            break
    else:
        if size > MAX_CHARACTERS:
            raise SnapshotError("too much text")
        return arguments, keywords, size
    budget = CopyBudget()
    try:
        copies = [_copy(value, budget, MAX_DEPTH) for value in arguments]
        if keywords:
            keywords = _copied_mapping(keywords, budget, MAX_DEPTH)
        return copies, keywords, budget.size
    except TooManyPartsError:
        packed, packed_keywords = _packed(arguments), _packed(keywords)
        return packed, packed_keywords, packed.size + packed_keywords.size


class Packed:
    """A value as it was when it was packed; `copies` are its parts of other than built-in types."""

    __slots__ = ("_copies", "_data")

    def __init__(self, data: bytes, copies: list[Any]) -> None:
        self._data, self._copies = data, copies

    @property
    def size(self) -> int:
        """About how many bytes it has."""
        return len(self._data) + MEMBER_BYTES * MAX_PARTS

    def value(self) -> Any:
        """Return the copy, as `snapshot` makes it of small values; raise `SnapshotError`."""
        value = _Unpacker(BytesIO(self._data), self._copies).load()
        return unpacked(_copy(value, CopyBudget(MAX_PACKED_PARTS), MAX_DEPTH))


class PackedRows:
    """Some mappings of a list, as bytes: what keeps no containers costs no garbage collection."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def unpacked(value: Any) -> Any:
    """Return what `snapshot` made, without `Packed` and `PackedRows`; raise `SnapshotError`."""
    if type(value) is Packed:
        return value.value()
    if type(value) is dict:
        return {name: unpacked(member) for name, member in value.items()}
    if type(value) is not list:
        return value
    members: list[Any] = []
    for member in value:
        if type(member) is PackedRows:
            members += marshal.loads(member.data)  # noqa: S302 - written by this process
        else:
            members.append(unpacked(member))
    return members


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
        self._budget = CopyBudget()

    def reducer_override(self, value: Any) -> Any:
        """Return what stands for a value of another type, without code of that type."""
        if value is _copy_at:
            return NotImplemented
        self._budget.take_parts(1)
        self.copies.append(_copy(value, self._budget, MAX_DEPTH))
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


def _copy(value: Any, budget: CopyBudget, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        budget.take_characters(len(value))
        return value
    if kind in ATOMS:
        return value
    if depth <= 0:
        raise SnapshotError("nested too deeply")
    if kind is dict:
        return _copied_mapping(value, budget, depth)
    if kind is list or kind is tuple:
        return _copied_list(value, budget, depth)
    return _reading(kind)(value, budget, depth)  # type: ignore[arg-type]  # a type has a hash


def _copied_mapping(value: dict[Any, Any], budget: CopyBudget, depth: int) -> dict[Any, Any]:
    """Return a copy; names are as they are, the thread that writes makes text of them."""
    budget.take_members(1 + dict.__len__(value))
    # Another thread may change the mapping while its members are copied.
    copy = dict.copy(value)
    members = [*copy.values()]
    kinds = {*map(type, members)}
    if str in kinds:
        budget.take_characters(_characters(members, kinds))
    if not kinds <= _FLAT:
        budget.take_parts(1 + len(members))
        _copy_members(copy, budget, depth - 1)
    return copy


def _copy_members(copy: dict[Any, Any], budget: CopyBudget, depth: int) -> None:
    """Put copies in the place of the members of a mapping that may change."""
    for name, member in copy.items():
        if type(member) not in _FLAT:
            copy[name] = _copy(member, budget, depth)


def _copied_list(value: Any, budget: CopyBudget, depth: int) -> list[Any]:
    budget.take_members(1 + len(value))
    # The first of many long documents says enough.
    first = 1 if len(value) > _COPIED_AT_ONCE else 0
    copies = _copied_group(value[:1], budget, depth) if first else []
    for start in range(first, len(value), _COPIED_AT_ONCE):
        copies += _copied_group(value[start : start + _COPIED_AT_ONCE], budget, depth)
    return copies


def _copied_group(group: Any, budget: CopyBudget, depth: int) -> list[Any]:
    kinds = {*map(type, group)}
    if len(kinds) == 1 and dict in kinds:
        return _copied_rows(group, budget, depth - 1)
    copies = [*group]
    if str in kinds:
        budget.take_characters(_characters(copies, kinds))
    if kinds <= _FLAT:
        return copies
    budget.take_parts(1 + len(copies))
    for index, member in enumerate(copies):
        if type(member) not in _FLAT:
            copies[index] = _copy(member, budget, depth - 1)
    return copies


def _copied_rows(rows: Any, budget: CopyBudget, depth: int) -> list[Any]:
    """Return copies of mappings; mappings of texts and numbers cost no step of Python."""
    if depth <= 0:
        raise SnapshotError("nested too deeply")
    members = [*chain.from_iterable(map(dict.values, rows))]
    kinds = {*map(type, members)}
    # Texts are counted first: one that is too long ends the copy before anything is copied.
    characters = _characters(members, kinds)
    budget.take_characters(characters)
    if kinds <= _FLAT:
        budget.take_members(len(members))
        return _packed_rows(rows, kinds, characters <= _SHORT_TEXT * len(members))
    budget.take_parts(len(rows) + len(members))
    copies = []
    for row in rows:
        copy = dict.copy(row)
        _copy_members(copy, budget, depth)
        copies.append(copy)
    return copies


def _packed_rows(rows: Any, kinds: set[type], is_short: bool) -> list[Any]:
    """Return mappings without containers packed, or as copies where names or members forbid it."""
    if is_short and kinds <= _MARSHALLED:
        try:
            return [PackedRows(marshal.dumps(rows))]
        except ValueError:
            pass
    return [*map(dict.copy, rows)]


def _characters(members: list[Any], kinds: set[type]) -> int:
    if str not in kinds:
        return 0
    texts = members if len(kinds) == 1 else [text for text in members if type(text) is str]
    return sum(map(len, texts))


_Reading = Callable[[Any, CopyBudget, int], Any]


@lru_cache(_REMEMBERED_TYPES)
def _reading(kind: type) -> _Reading:
    """Return what copies values of a less usual type, with functions of its base types only."""
    if kind is Unreadable:
        return lambda value, _budget, _depth: value
    if issubclass(kind, str):
        return _copied_text
    if issubclass(kind, dict):
        return _copied_mapping
    for base in (list, tuple, set, frozenset):
        if issubclass(kind, base):
            return partial(_copied_iterable, base)
    if issubclass(kind, int):
        return lambda value, _budget, _depth: int.__add__(value, 0)
    if issubclass(kind, float):
        return lambda value, _budget, _depth: float.__add__(value, 0.0)
    names = _field_names(kind)
    if names is not None:
        return partial(_copied_fields, names)
    unreadable = Unreadable(_type_name(kind))
    return lambda _value, _budget, _depth: unreadable


def _copied_text(value: Any, budget: CopyBudget, _depth: int) -> str:
    budget.take_characters(str.__len__(value))
    return str.__str__(value)


def _copied_iterable(base: type[Any], value: Any, budget: CopyBudget, depth: int) -> list[Any]:
    budget.take_parts(base.__len__(value))
    return _copied_list([*base.__iter__(value)], budget, depth)


def _copied_fields(names: frozenset[str], value: Any, budget: CopyBudget, depth: int) -> Any:
    """Return the fields of a dataclass or a pydantic model, as they stand in its `__dict__`."""
    members = object.__getattribute__(value, "__dict__")
    fields = {name: member for name, member in members.items() if name in names}
    return _copied_mapping(fields, budget, depth)


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


def _type_name(kind: type) -> str:
    name = type.__getattribute__(kind, "__name__")
    return name[:80] if type(name) is str else "object"
