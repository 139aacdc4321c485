"""Values against shapes: pydantic's errors as problems, with their places and what would work."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
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

from evalcore.wording import Loc, describe, suggest, suggest_assertion

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


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


_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "float_parsing": "a number",
    "dict_type": "a mapping",
    "list_type": "a list",
    "tuple_type": "a list",
    "none_required": "null",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "typed_dict_type": "a mapping",
    "dataclass_type": "a mapping",
}
_UNQUOTED = {"a number", "a whole number", "true or false"}
_EMPTY = {"string_too_short", "too_short", "dict_too_short"}
_PATTERNS = {
    CALLABLE: "`module:function`, such as 'checks:is_polite'",
    CUSTOM_TYPE: "'custom:<id>', the id of letters, digits, '_', '-' and '.'",
}
_KEY = "[key]"


def explain(error: ValidationError, value: Any, shape: Any) -> Iterator[tuple[Loc, str]]:
    """Yield the path into `value`, of `shape`, and the message of each mistake, in its order."""
    by_path: dict[Loc, list[ErrorDetails]] = {}
    inner: set[Loc] = set()
    details = error.errors(include_url=False)
    for detail in details:
        loc = _real_path(detail, value)
        by_path.setdefault(loc, []).append(detail)
        inner.update(loc[:end] for end in range(len(loc)))
    for loc, errors in by_path.items():
        specific = [detail for detail in errors if _expected(detail) is None]
        if specific:
            yield loc, _message(specific[0], loc, shape)
        # A type that does not fit says nothing where another member of the union went deeper.
        elif loc not in inner:
            yield loc, _type_message(errors)


def _expected(error: ErrorDetails) -> str | None:
    """Return what type was expected, None if the error is not one of types."""
    return None if _is_key(error) else _EXPECTED.get(error["type"])


def _is_key(error: ErrorDetails) -> bool:
    return bool(error["type"] == "invalid_key" or error["loc"][-1:] == (_KEY,))


def _real_path(error: ErrorDetails, value: Any) -> Loc:
    """Drop the names of union members, which pydantic puts into a path; add what is missing."""
    path: list[str | int] = []
    node = value
    loc: Sequence[Any] = error["loc"]
    if _is_key(error):
        named = isinstance(error.get("input"), int) and not isinstance(error["input"], bool)
        loc = [part for part in loc if part != _KEY][: None if named else -1]
    for position, part in enumerate(loc):
        if _holds(node, part):
            node = node[part]
        elif error["type"] != "missing" or position < len(loc) - 1:
            continue
        path.append(part)
    if error["type"] in {"union_tag_invalid", "union_tag_not_found"}:
        path.append(_discriminator(error))
    return tuple(path)


def _holds(node: Any, part: str | int) -> bool:
    if isinstance(node, list):
        return isinstance(part, int) and part < len(node)
    return isinstance(node, Mapping) and part in node


def _type_message(errors: Sequence[ErrorDetails]) -> str:
    names = list(dict.fromkeys(_EXPECTED[error["type"]] for error in errors))
    value = errors[0].get("input")
    if {"text", "a number", "true or false"} <= set(names):
        names = ["text"]
    elif "a number" in names and "a whole number" in names:
        names.remove("a whole number")
    names.sort(key=lambda name: name == "true or false")
    separator = ", " if names[-1] == "true or false" else " or "
    return f"expected {separator.join(names)}, got {describe(value)}{_quotes_hint(names, value)}"


def _quotes_hint(names: Sequence[str], value: object) -> str:
    if "text" in names and isinstance(value, int | float):
        return "; write it in quotes"
    numeric = isinstance(value, str) and re.fullmatch(r"-?\d+(\.\d+)?|true|false", value)
    return "; write it without quotes" if numeric and names[-1] in _UNQUOTED else ""


def _message(error: ErrorDetails, loc: Loc, shape: Any) -> str:
    kind, value, context = error["type"], error.get("input"), error.get("ctx", {})
    if _is_key(error):
        return f"a key must be text, got {describe(value)}; write it in quotes"
    if kind == "missing":
        return "is required"
    if kind in {"extra_forbidden", "unexpected_keyword_argument"}:
        return f"unknown key '{loc[-1]}'." + _key_hint(loc, known_keys(shape, error["loc"]))
    if kind == "union_tag_invalid":
        return _tag_message(error)
    if kind == "union_tag_not_found":
        return "is required" + _shorthand_hint(value, shape, error["loc"])
    if kind in {"literal_error", "enum"}:
        choices = str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", ")
        return f"unknown value {describe(value)}." + suggest(value, choices)
    if kind in _EMPTY:
        return "must not be empty"
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error", error["msg"]))
    bound = _bound(kind, context)
    if bound is None:
        bound = str(error["msg"]).removeprefix("Input should be ")
    return f"must be {bound}, got {describe(value)}"


def _bound(kind: str, context: Mapping[str, Any]) -> str | None:
    """Return what bound or pattern a value has to keep."""
    if kind == "greater_than_equal":
        return f"at least {_number(context['ge'])}"
    if kind == "greater_than":
        return f"more than {_number(context['gt'])}"
    if kind == "less_than_equal":
        share = context["le"] == 1
        return "a number from 0 to 1" if share else f"at most {_number(context['le'])}"
    if kind == "finite_number":
        return "a finite number"
    if kind == "string_unicode":
        return "valid Unicode text"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], f"text like {context['pattern']}")
    return None


def _number(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _discriminator(error: ErrorDetails) -> str:
    return str(error["ctx"]["discriminator"]).strip("'")


def _tag_message(error: ErrorDetails) -> str:
    """Say which type was meant by one that does not exist."""
    value, name = error.get("input"), _discriminator(error)
    written = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(written, str):
        return f"expected text, got {describe(written)}"
    tags = [tag.strip("'") for tag in str(error["ctx"]["expected_tags"]).split(", ")]
    if "contains" not in tags:
        return f"unknown {name} {describe(written)}." + suggest(written, tags)
    return f"unknown assertion {describe(written)}." + suggest_assertion(written, tags)


def _shorthand_hint(value: Any, shape: Any, loc: Sequence[str | int]) -> str:
    """Return how to write `contains: refund`, a type in the place of the key."""
    for part in loc:
        shape = member_of(shape, part)
    for key in value if isinstance(value, Mapping) else ():
        if "type" in fields_of(member_of(shape, key)):
            return f"; write {{type: {key}, value: …}}"
    return ""


# What other versions of AgentV call a key; the nearest of our names is another one.
_OTHER_KEYS: Final = {
    "case": "id",
    "evaluate_options": "execution",
    "expected_messages": "expected_output",
    "experiment": "execution",
    "input_messages": "input",
}


def _key_hint(loc: Loc, names: Collection[str]) -> str:
    if loc[-1] == "output" and "fixtures" in names:
        return " Write the given answer as `fixtures: {output: …}`."
    own = _OTHER_KEYS.get(str(loc[-1]))
    # Both keys are what only a test or the suite level of a test file has.
    if own in names and not {"criteria", "execution"}.isdisjoint(names):
        return f" Did you mean '{own}'?"
    return suggest(loc[-1], names)


def known_keys(shape: Any, loc: Sequence[str | int]) -> tuple[str, ...]:
    """Return the keys that a TypedDict allows where the unknown key at `loc` stands.

    `loc` is pydantic's own path, with the names of union members in it.
    """
    for part in loc[:-1]:
        shape = member_of(shape, part)
    return fields_of(shape)


def sound_part(value: dict[str, Any], shape: Any, wrong: Sequence[Loc]) -> dict[str, Any]:
    """Return a copy of a mapping of `shape` without what stands at the `wrong` paths.

    A mapping that thereby lacks a key is left out as a whole, as far as it is not the outermost; so
    is a list with a wrong member, whose other members would move.
    """
    from pydantic import ValidationError

    while wrong:
        rest = _without(value, wrong)
        if rest == value:
            break
        value = rest
        try:
            adapter(shape).validate_python(value)
        except ValidationError as error:
            wrong = [loc for loc, _ in explain(error, value, shape)]
        else:
            break
    return value


def _without(value: dict[str, Any], wrong: Iterable[Loc]) -> dict[str, Any]:
    copy = _copy(value)
    for loc in wrong:
        boxes = [copy]
        for part in loc[:-1]:
            inner = boxes[-1].get(part)
            if not isinstance(inner, dict):
                break
            boxes.append(inner)
        depth = len(boxes) - 1
        if loc and loc[depth] in boxes[-1]:
            del boxes[-1][loc[depth]]
        elif depth:
            boxes[-2].pop(loc[depth - 1], None)
    return copy


def _copy(value: dict[Any, Any]) -> dict[Any, Any]:
    """Return a copy of the mappings in mappings; everything else is shared."""
    return {key: _copy(item) if isinstance(item, dict) else item for key, item in value.items()}
