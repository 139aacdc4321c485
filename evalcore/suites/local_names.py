"""A program's functions: the names that the stored plan has for them, digests of their code."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, Final

from evalcore.trust.imports import LOCAL

_PLAIN: Final = (str, int, float, bool, type(None))
# Values whose `repr` is what they are.
_WRITTEN: Final = (
    bytes,
    bytearray,
    complex,
    range,
    date,
    time,
    Decimal,
    Enum,
    PurePath,
    re.Pattern,
)
_DEEPEST: Final = 4


def name_of(value: Any) -> str:
    """Return what a function, class or instance is called in a plan."""
    if isinstance(value, functools.partial):
        return name_of(value.func)
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return str(name).rpartition("<locals>.")[2].replace("<lambda>", "lambda")


class Behaviours:
    """Digests of the code of functions and objects; files are read once."""

    def __init__(self) -> None:
        self._files: dict[str, str | None] = {}

    def of(self, value: Any) -> str:
        """Return a SHA-256 (hex) that changes when the code of a callable does.

        Of the module's file and what it imports from below its root, the place in it, the values
        that it closes over and its defaults, as far as they are plain. Without a file, of the code
        itself and of what that uses of its module. No address and no id is in it.
        """
        described = json.dumps(self._described(value, 0), sort_keys=True)
        return hashlib.sha256(described.encode("utf-8", "replace")).hexdigest()

    def _described(self, value: Any, depth: int) -> Any:
        if isinstance(value, _PLAIN):
            return repr(value) if isinstance(value, float) else value
        if isinstance(value, _WRITTEN):
            return [type(value).__qualname__, repr(value)]
        if depth >= _DEEPEST:
            return type(value).__qualname__
        parts = _parts_of(value)
        if parts is not None:
            return [self._described(part, depth + 1) for part in parts]
        if isinstance(value, set | frozenset):
            members = [self._described(item, depth + 1) for item in value]
            return sorted(members, key=lambda member: json.dumps(member, sort_keys=True))
        if isinstance(value, Mapping):
            return {str(key): self._described(item, depth + 1) for key, item in value.items()}
        if inspect.isfunction(value):
            return self._function(value, depth + 1)
        if inspect.isclass(value) or inspect.isbuiltin(value) or inspect.ismodule(value):
            return self._named(value, depth + 1)
        fields = self._described(_fields(value), depth + 1)
        return [*self._named(type(value), depth + 1), fields]

    def _function(self, function: Any, depth: int) -> list[Any]:
        cells = [_cell(cell) for cell in function.__closure__ or ()]
        bound = (function.__defaults__, function.__kwdefaults__, cells)
        line = function.__code__.co_firstlineno
        named = self._named(function, depth)
        return [*named, line, *(self._described(value, depth) for value in bound)]

    def _named(self, value: Any, depth: int) -> list[Any]:
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        digest = self._file_digest(value)
        source: Any = digest
        if digest is None and inspect.isfunction(value):
            source = [_code(value.__code__), self._used(value, depth)]
        elif digest is None and inspect.isclass(value) and module == "__main__":
            members = {
                key: member for key, member in vars(value).items() if inspect.isfunction(member)
            }
            source = self._described(members, depth)
        return [str(module), str(name), source]

    def _used(self, function: Any, depth: int) -> Any:
        """Return what a function without a file uses of its module: a notebook's other cells."""
        namespace = function.__globals__
        names = sorted(set(_names_in(function.__code__)) & set(namespace))
        used = {name: namespace[name] for name in names if namespace[name] is not function}
        return self._described(used, depth)

    def _file_digest(self, value: Any) -> str | None:
        code = getattr(value, "__code__", None)
        name = getattr(code, "co_filename", None)
        if name is None:
            module = sys.modules.get(str(getattr(value, "__module__", "")))
            name = getattr(module, "__file__", None)
        if not isinstance(name, str):
            return None
        if name not in self._files:
            from evalcore.trust.code_digests import digest_of_file

            self._files[name] = digest_of_file(Path(name))
        return self._files[name]


def _parts_of(value: Any) -> Sequence[Any] | None:
    """Return what a list, a partial function or a method is made of."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    return [value.__func__, value.__self__] if inspect.ismethod(value) else None


def _fields(value: Any) -> dict[str, Any]:
    """Return what an instance holds: its attributes, those in slots too."""
    slots = [name for base in type(value).__mro__ for name in _slots(base)]
    in_slots = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return {**in_slots, **getattr(value, "__dict__", {})}


def _slots(base: type) -> tuple[str, ...]:
    slots = base.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if not name.startswith("__"))


def _code(code: types.CodeType) -> list[Any]:
    """Return what a code object does, as JSON; where it stands in a file is no part of it."""
    return [
        code.co_code.hex(),
        list(code.co_names),
        [_constant(constant) for constant in code.co_consts],
    ]


def _constant(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return [_constant(member) for member in value]
    if isinstance(value, frozenset):
        return sorted(repr(member) for member in value)
    return f"{type(value).__qualname__} {value!r}"


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _names_in(value)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


class LocalNames:
    """Gives each object a reference `local:NAME`; `objects` has them by it."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self._behaviours = Behaviours()

    def refer(self, value: Any, name: str | None = None) -> str:
        """Return the reference of an object; the same object has the same one."""
        stem = re.sub(r"[^\w.]+", "_", name or name_of(value)).strip("._") or "function"
        base = reference = f"{LOCAL}{stem}"
        number = 2
        while reference in self.objects and self.objects[reference] is not value:
            reference = f"{base}_{number}"
            number += 1
        self.objects[reference] = value
        return reference

    def describe(self, value: Any, name: str | None = None) -> dict[str, str]:
        """Return `{callable, behaviour}` of an object."""
        return {"callable": self.refer(value, name), "behaviour": self._behaviours.of(value)}
