"""What a file can say: strict models, types of fields, and pydantic's errors as mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, lru_cache
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
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    Strict,
    Tag,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticKnownError, core_schema
from typing_extensions import is_typeddict

from evalcore.model.evidence import LARGEST
from evalcore.model.iterations import AUTO, ITERATIONS_FORMS, MOST_ITERATIONS, parse_iterations
from evalcore.wording import Loc, describe, path_text, suggest, suggest_assertion

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


CALLABLE = r"^[\w.]+:[\w.]+$"
_FUNCTION = r"^[^:\s]+:[^:\s]+$"
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
_MODULE_AND_FUNCTION = "`module:function`, such as 'checks:is_polite'"
_PATTERNS = {
    CALLABLE: _MODULE_AND_FUNCTION,
    _FUNCTION: _MODULE_AND_FUNCTION,
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


def sound_part(value: dict[str, Any], wrong: Sequence[Loc]) -> dict[str, Any]:
    """Return a mapping without the members in which something is wrong."""
    keys = {loc[0] for loc in wrong if loc}
    return {key: member for key, member in value.items() if key not in keys}


def _check_iterations(text: str) -> str:
    if not text.startswith(AUTO):
        # A number in quotes is text, as everywhere else.
        raise ValueError(f"expected {ITERATIONS_FORMS}, got {text!r}")
    parse_iterations(text)
    return text


Text = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
IterationCount = Annotated[int, Field(ge=1, le=MOST_ITERATIONS)]
Repetitions = Annotated[
    Annotated[IterationCount, Tag("number")]
    | Annotated[
        str,
        AfterValidator(_check_iterations),
        Field(json_schema_extra={"pattern": f"^{AUTO}(:[0-9]+)?$"}),
        Tag("text"),
    ],
    Discriminator(lambda value: "text" if isinstance(value, str) else "number"),
]
"""How often each case is run: a number, `auto` or `auto:MAX` (`model.iterations`)."""
Measure = Annotated[float, Field(ge=0, le=LARGEST)]
Seconds = Annotated[float, Field(gt=0)]
Level = Annotated[float, Field(gt=0, lt=1)]

T = TypeVar("T")
Listed = Annotated[tuple[T, ...], Strict(strict=False)]
"""A list in the file."""


def _refuse_empty(members: tuple[T, ...]) -> tuple[T, ...]:
    if not members:
        details = {"field_type": "List", "min_length": 1, "actual_length": 0}
        raise PydanticKnownError("too_short", details)
    return members


# Pydantic counts only the sound members of a tuple, and would call a list of wrong ones empty.
NonEmpty = Annotated[
    tuple[T, ...],
    Strict(strict=False),
    AfterValidator(_refuse_empty),
    Field(json_schema_extra={"minItems": 1}),
]
"""A list in the file with at least one member."""


class _NotNull:
    """Refuses null: a key is left out or has a value."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Return the schema of the type without None."""
        members = [member for member in get_args(source) if member is not NoneType]
        return handler(Union[tuple(members)])  # noqa: UP007 - the members are values


OrAbsent = Annotated[T | None, _NotNull()]
"""A value, or None where the key is left out; null is a mistake."""


Scalar = Annotated[
    str | int | float | bool,
    Field(description="Text; numbers and booleans are compared as their JSON text"),
]
TextOrTexts = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    Discriminator(lambda value: "<list>" if isinstance(value, list) else "<text>"),
]


def text_or_mapping(value: object) -> str:
    """Name the member of a union by the kind of value, so that a mistake is reported once."""
    return "<mapping>" if isinstance(value, dict) else "<text>"


def camel_case(name: str) -> str:
    """Return `node_id` as `nodeId`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _either_case(name: str) -> str | AliasChoices:
    """Return both spellings of a key, snake_case first: mistakes and schemas use that one."""
    camel = camel_case(name)
    return name if camel == name else AliasChoices(name, camel)


class Declared(BaseModel):
    """Something that a file can write.

    Strict: text is no number, unknown keys and infinite numbers are mistakes. A key of several
    words may be written in snake_case or camelCase. Validators are built when first used; read
    values through `evalcore.shapes.adapter`, which skips pydantic's search for
    plug-ins.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        defer_build=True,
        alias_generator=AliasGenerator(validation_alias=_either_case),
    )


STRICT: Final = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def written_as(shape: Any) -> GetPydanticSchema:
    """Mark a field whose type in files is `shape`, where Python takes more."""
    return GetPydanticSchema(lambda _source, handler: handler(shape))


FUNCTION: Final = written_as(Annotated[str, Field(pattern=_FUNCTION)])
"""Marks a function; in files it is written `module:function`."""
REQUIRED: Final[Any] = object()
"""The default of a required parameter that stands after others in Python's signature."""
_Made = TypeVar("_Made")


class ParameterError(ValueError):
    """Something is written with wrong parameters; the message says what would work."""


def _default(field: Any) -> Any:
    if field.default_factory is not MISSING:
        return Field(default_factory=field.default_factory)
    return ... if field.default is MISSING or field.default is REQUIRED else field.default


@cache
def _model_of(declared: Any) -> type[BaseModel]:
    hints: dict[str, Any] = get_type_hints(declared, include_extras=True)
    given: dict[str, Any] = {
        each.name: (hints[each.name], _default(each)) for each in fields(declared)
    }
    with without_plugins():
        return create_model(declared.__name__, __base__=Declared, **given)


def model_of(declared: Any) -> type[BaseModel]:
    """Return the model of what a file may write for a frozen dataclass: its fields, their keys.

    A field's `Field(alias=…, description=…)` is its key in files, where Python's name has the unit,
    and the unit.
    """
    return _model_of(declared)


def parameters_of(declared: type[Any]) -> dict[str, FieldInfo]:
    """Return the parameters of a declared dataclass by their keys in files."""
    fields_by_name = model_of(declared).model_fields.items()
    return {info.alias or name: info for name, info in fields_by_name}


def read_declared(declared: type[_Made], written: Mapping[str, Any], label: str) -> _Made:
    """Return what a mapping of a file declares; its keys may be in camelCase.

    Raises `ParameterError` with every mistake; `label` says in what they are.
    """
    model = model_of(declared)
    try:
        read = adapter(model).validate_python(dict(written))
        return declared(**{name: getattr(read, name) for name in read.model_fields_set})
    except ValidationError as error:
        mistakes = [parameter_mistake(*each) for each in explain(error, written, model)]
        # A misspelt key is the mistake, not what it leaves missing.
        unknown = [each for each in mistakes if each.startswith("unknown key")]
        raise ParameterError(f"{label}: {'; '.join(unknown or mistakes)}") from None
    except ValueError as error:
        raise ParameterError(f"{label}: {error}") from None


def parameter_mistake(loc: Loc, message: str) -> str:
    """Return a mistake of `explain` as a clause that names the parameter."""
    if message.startswith("unknown key"):
        return message if " " in message.removeprefix("unknown key ") else f"{message} It has none."
    return f"'{path_text(loc)}'{'' if message.startswith(('is ', 'must ')) else ':'} {message}"


def parameter_values(instance: Any) -> dict[str, Any]:
    """Return the values of all parameters by their keys: what a plan keeps."""
    names = model_of(type(instance)).model_fields.items()
    return {info.alias or name: getattr(instance, name) for name, info in names}


def restore(declared: type[_Made], stored: Mapping[str, Any]) -> _Made:
    """Return the instance with these `parameter_values`; what is missing has its default."""
    names = model_of(declared).model_fields.items()
    keys = {name: info.alias or name for name, info in names}
    return declared(**{name: stored[key] for name, key in keys.items() if key in stored})


def choices_of(parameter: FieldInfo) -> tuple[str, ...]:
    """Return the values of a parameter that is a choice, none of another one."""
    return _literals(parameter.annotation)


def value_of_text(text: str, parameter: FieldInfo | None) -> Any:
    """Return the value that a text of the command line stands for; lists have commas."""
    text = text.strip()
    kind = None if parameter is None else strip_wrappers(parameter.annotation)
    if get_origin(kind) is Iterable:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind not in {None, bool, float, int}:
        return text
    words = {"true": True, "false": False, "none": None, "null": None}
    if text in words:
        return words[text]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def documented(shape: type[Any]) -> str:
    """Return the first paragraph of a docstring on one line, to go on in a sentence."""
    text = " ".join((shape.__doc__ or "").split("\n\n")[0].split())
    return (text[:1].lower() + text[1:]).removesuffix(".")


def snake_case(name: str) -> str:
    """Return camelCase as snake_case; digits belong to the word before them (`p95Latency`)."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
