"""What a shape holds: its validator, its keys, and what stands at one of them.

Shapes are TypedDicts and pydantic models.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel, Tag, TypeAdapter
from typing_extensions import is_typeddict

CALLABLE = r"^[\w.]+:[\w.]+$"
CUSTOM_TYPE = r"^(not-)?custom:[\w.-]+$"

_DISABLE_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def without_plugins() -> Iterator[None]:
    """Build models and validators without pydantic's plug-ins.

    The search for them reads the metadata of every installed package.
    """
    before = os.environ.get(_DISABLE_PLUGINS)
    os.environ[_DISABLE_PLUGINS] = "__all__"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_DISABLE_PLUGINS]
        else:
            os.environ[_DISABLE_PLUGINS] = before


@lru_cache(maxsize=64)
def adapter(shape: Any) -> TypeAdapter[Any]:
    """Return the validator of a shape, built once per process."""
    with without_plugins():
        return TypeAdapter(shape)


def strip_wrappers(shape: Any) -> Any:
    """Return the shape inside `Annotated`, `Required`, and a union with nothing but None."""
    while True:
        origin = get_origin(shape)
        if origin in {Annotated, Required, NotRequired}:
            shape = get_args(shape)[0]
            continue
        if origin in {Union, UnionType}:
            members = [member for member in get_args(shape) if member is not NoneType]
            if len(members) == 1:
                shape = members[0]
                continue
        return shape


def member_of(shape: Any, part: str | int) -> Any:
    """Return the shape that stands at `part` of a shape (a key, an index, a union tag)."""
    shape = strip_wrappers(shape)
    if is_typeddict(shape):
        return get_type_hints(shape, include_extras=True).get(str(part), Any)
    if is_model(shape):
        named = (info for name, info in shape.model_fields.items() if part in (name, info.alias))
        field = next(named, None)
        return Any if field is None else field.annotation
    origin, arguments = get_origin(shape), get_args(shape)
    if origin in {list, tuple}:
        return arguments[0]
    if origin is dict:
        return arguments[1]
    if origin in {Union, UnionType}:
        return _union_member(arguments, part)
    return Any


def _union_member(arguments: tuple[Any, ...], part: str | int) -> Any:
    """Return the member of a union that `part` names: a tag, a class, an index or a key."""
    for member in arguments:
        if any(isinstance(mark, Tag) and mark.tag == part for mark in get_args(member)[1:]):
            return member
        inner = strip_wrappers(member)
        if is_typeddict(inner):
            hints = get_type_hints(inner, include_extras=True)
            if inner.__name__ == part:
                return inner
            if part in get_args(strip_wrappers(hints.get("type", None))):
                return inner
            if part in hints:
                return hints[str(part)]
        elif is_model(inner):
            if any(part in _literals(info.annotation) for info in inner.model_fields.values()):
                return inner
        elif get_origin(inner) is list and isinstance(part, int):
            return member_of(inner, part)
    return Any


def _literals(annotation: Any) -> tuple[Any, ...]:
    shape = strip_wrappers(annotation)
    return get_args(shape) if get_origin(shape) is Literal else ()


def inner_shapes(shape: Any) -> tuple[Any, ...]:
    """Return the pydantic models that a value of a shape may be."""
    shape = strip_wrappers(shape)
    if is_model(shape):
        return (shape,)
    if get_origin(shape) in {Union, UnionType}:
        return tuple(inner for member in get_args(shape) for inner in inner_shapes(member))
    return ()


def is_model(shape: Any) -> TypeGuard[type[BaseModel]]:
    """Whether a shape is a pydantic model."""
    return isinstance(shape, type) and issubclass(shape, BaseModel)


def fields_of(shape: Any) -> tuple[str, ...]:
    """Return the keys of a TypedDict (of the only one in a union); () for anything else."""
    shape = strip_wrappers(shape)
    if is_dataclass(shape):
        return tuple(each.name for each in fields(shape))
    if is_typeddict(shape):
        return tuple(get_type_hints(shape))
    if is_model(shape):
        return tuple(info.alias or name for name, info in shape.model_fields.items())
    members = [inner for inner in map(strip_wrappers, get_args(shape)) if is_typeddict(inner)]
    return tuple(get_type_hints(members[0])) if len(members) == 1 else ()
