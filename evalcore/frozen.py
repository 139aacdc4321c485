"""`@frozen`: a frozen dataclass that costs next to nothing until its first object is decorated.

`@dataclass(frozen=True, slots=True)` writes and compiles six methods for each class, 0.6 ms; a
command imports more than a hundred such classes and makes objects of few (decision 0100). Here the
methods that need no text of their own are closures, and `__init__` is compiled for the first
object. What they do is what the standard library documents, and so do `fields`, `replace`,
`asdict`, patterns, copies, pickles, and pydantic with such a class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, TypeVar, dataclass_transform, overload

Class = TypeVar("Class", bound=type)
Values = Callable[[object], object]
_NOT_GIVEN: Final = object()


@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Class, /) -> Class: ...
@overload
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(
    *, slots: bool = True, eq: bool = True, kw_only: bool = False
) -> Callable[[Class], Class]: ...
def frozen(
    cls: type | None = None, /, *, slots: bool = True, eq: bool = True, kw_only: bool = False
) -> Any:
    """Make the class a frozen dataclass, by default one with slots.

    A subclass that has fields of its own takes this decorator too. As with the standard one,
    methods that the class itself defines stay, and a class with slots is a new object.
    """
    if cls is None:
        return partial(_make, slots=slots, eq=eq, kw_only=kw_only)
    return _make(cls, slots=slots, eq=eq, kw_only=kw_only)


def _make(cls: type, *, slots: bool, eq: bool, kw_only: bool) -> Any:
    own = vars(cls)
    keeps_hash = own.get("__hash__") is not None
    if not cls.__doc__:
        # The standard decorator would import `inspect` and describe the parameters.
        cls.__doc__ = cls.__name__
    decorated: Any = dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    methods = {"__init__": _late_init(decorated), "__repr__": _repr, **_refusals(decorated)}
    if slots:
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    if eq:
        methods["__eq__"] = _equality(_values(each for each in fields(decorated) if each.compare))
    for name, method in methods.items():
        if name not in own:
            setattr(decorated, name, method)
    if eq and not keeps_hash:
        decorated.__hash__ = _hash(_values(each for each in fields(decorated) if _is_hashed(each)))
    return decorated


def _is_hashed(each: Field[Any]) -> bool:
    return each.compare if each.hash is None else each.hash


def _values(compared: Iterable[Field[Any]]) -> Values:
    names = [each.name for each in compared]
    if len(names) > 1:
        return attrgetter(*names)
    # `attrgetter` gives the value of a single name itself, and refuses none.
    return lambda decorated: tuple(getattr(decorated, name) for name in names)


def _equality(values: Values) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return equal


def _hash(values: Values) -> Callable[[Any], int]:
    def hash_of(self: Any) -> int:
        return hash(values(self))

    return hash_of


@recursive_repr()
def _repr(self: Any) -> str:
    parts = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{self.__class__.__qualname__}({', '.join(parts)})"


def _refusals(cls: Any) -> dict[str, Callable[..., Any]]:
    """Return what refuses changes; a subclass without fields may have attributes beside them."""
    names = {each.name for each in fields(cls)}

    def refuse_value(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_deletion(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": refuse_value, "__delattr__": refuse_deletion}


def _state(self: Any) -> list[object]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _late_init(cls: Any) -> Callable[..., None]:
    def make_and_call(self: Any, *args: object, **kwargs: object) -> None:
        if cls.__init__ is make_and_call:
            cls.__init__ = _init(cls)
        cls.__init__(self, *args, **kwargs)

    return make_and_call


def _init(cls: Any) -> Any:
    """Return the `__init__` of the fields, as the standard decorator would write it."""
    names = {"_set": object.__setattr__, "_not_given": _NOT_GIVEN}
    positional, by_name, lines = ["self"], list[str](), list[str]()
    for each in fields(cls):
        name, default, value = each.name, f"_default_{each.name}", each.name
        parameter = name
        if each.default is not MISSING:
            names[default], parameter = each.default, f"{name}={default}"
        elif each.default_factory is not MISSING:
            names[default], parameter = each.default_factory, f"{name}=_not_given"
            value = f"{default}() if {name} is _not_given else {name}"
        if each.init:
            (by_name if each.kw_only else positional).append(parameter)
        elif each.default_factory is not MISSING:
            value = f"{default}()"
        else:
            # The default is an attribute of the class.
            continue
        lines.append(f"_set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *by_name] if by_name else [])])
    text = f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"])
    exec(text, names)  # noqa: S102 - of names of fields, which are identifiers
    return names["__init__"]
