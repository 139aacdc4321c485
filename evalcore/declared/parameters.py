"""Small declared things: a frozen dataclass whose fields are the parameters that a file may write.

A field's type says what may be written (`Rule`), its default is the parameter's. Reading, the
stored form, texts of the command line, JSON Schema and the documentation are derived from it.
Pydantic does the checking; it is imported when the first value of a file is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from evalcore.wording import describe, suggest

_Declared = TypeVar("_Declared")

REQUIRED: Final[Any] = object()
"""The default of a required parameter that stands after others in Python's signature."""


class ParameterError(ValueError):
    """A declared thing is written wrongly; the message says what would work."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a file may write for a field.

    `check` returns the value, or raises `ValueError` with what it should be (`a text`). `schema` is
    the JSON Schema of the same.
    """

    check: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, _schema: Any, _handler: Any) -> dict[str, Any]:
        return dict(self.schema)


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a field in files, where Python's name has the unit."""

    name: str
    unit: str = ""


class Parameter(NamedTuple):
    """A field as files write it: `kind` is its type without annotations."""

    field: str
    key: str
    unit: str
    kind: Any
    required: bool
    default: Any


def parameters_of(declared: Any) -> Mapping[str, Parameter]:
    """Return the parameters of a declared class by their keys, in the order of its fields."""
    return _parameters(declared)


@cache
def _parameters(declared: Any) -> Mapping[str, Parameter]:
    hints, kinds = get_type_hints(declared, include_extras=True), get_type_hints(declared)
    parameters = {}
    for field in fields(declared):
        key = next((mark for mark in get_args(hints[field.name]) if isinstance(mark, Key)), None)
        key = key or Key(field.name)
        required = field.default is MISSING or field.default is REQUIRED
        default = None if required else field.default
        parameters[key.name] = Parameter(
            field.name, key.name, key.unit, kinds[field.name], required, default
        )
    return parameters


def read_parameters(declared: type[_Declared], written: Mapping[str, Any], label: str) -> _Declared:
    """Return what a mapping of a file declares; its keys may be in camelCase.

    Raises `ParameterError` with the first mistake; `label` says in what it is.
    """
    parameters = parameters_of(declared)
    values: dict[str, Any] = {}
    for key, value in written.items():
        parameter = parameters.get(snake_case(str(key)))
        if parameter is None:
            hint = suggest(snake_case(str(key)), parameters) or " It has none."
            raise ParameterError(f"{label}: unknown parameter '{key}'.{hint}")
        if parameter.field in values:
            message = f"'{parameter.key}' is given twice ('{key}' is the same)"
            raise ParameterError(f"{label}: {message}")
        values[parameter.field] = value
    for parameter in parameters.values():
        if parameter.required and parameter.field not in values:
            raise ParameterError(f"{label}: '{parameter.key}' is required")
    from pydantic import ValidationError

    from evalcore.shapes import adapter

    shape: Any = declared
    try:
        instance: _Declared = adapter(shape).validate_python(values)
    except ValidationError as error:
        raise ParameterError(f"{label}: {_worded(error, parameters)}") from None
    return instance


def _worded(error: Any, parameters: Mapping[str, Parameter]) -> str:
    """Return the first mistake that pydantic lists, in the words of the field's rule."""
    first = error.errors(include_url=False)[0]
    if not first["loc"]:
        return str(first["ctx"]["error"])
    parameter = next(each for each in parameters.values() if each.field == first["loc"][0])
    if first["type"] == "literal_error":
        choices = ", ".join(choices_of(parameter))
        return f"'{parameter.key}' is one of {choices}, not {describe(first['input'])}"
    return f"'{parameter.key}' is {first['ctx']['error']}"


def parameter_values(declared: Any) -> dict[str, Any]:
    """Return the values of all parameters by their keys: what a plan keeps."""
    parameters = parameters_of(type(declared)).values()
    return {each.key: getattr(declared, each.field) for each in parameters}


def restore(declared: type[_Declared], stored: Mapping[str, Any]) -> _Declared:
    """Return the instance with these `parameter_values`; what is missing has its default."""
    parameters = parameters_of(declared).values()
    return declared(**{each.field: stored[each.key] for each in parameters if each.key in stored})


def choices_of(parameter: Parameter) -> tuple[str, ...]:
    """Return the values of a parameter that is a choice, none of another one."""
    return get_args(parameter.kind) if get_origin(parameter.kind) is Literal else ()


def value_of_text(text: str, parameter: Parameter | None) -> Any:
    """Return the value that a text of the command line stands for; lists have commas."""
    text = text.strip()
    kind = None if parameter is None else parameter.kind
    if kind is not None and get_origin(kind) is Iterable:
        return [part.strip() for part in text.split(",") if part.strip()]
    if kind not in {None, bool, float, int, float | None}:
        return text
    if kind == float | None and text in {"none", "null"}:
        return None
    if text in {"true", "false"}:
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def snake_case(name: str) -> str:
    """Return camelCase as snake_case; digits belong to the word before them (`p95Latency`)."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def json_schema(declared: type) -> dict[str, Any]:
    """Return `properties` and `required` of the JSON Schema of the parameters."""
    from evalcore.shapes import adapter

    with warnings.catch_warnings():  # `REQUIRED` is no JSON value
        warnings.simplefilter("ignore")
        fields = adapter(declared).json_schema().get("properties", {})
    parameters = parameters_of(declared)
    return {
        "properties": {key: fields[each.field] for key, each in parameters.items()},
        "required": [key for key, each in parameters.items() if each.required],
    }


def documented(declared: type) -> str:
    """Return the first paragraph of the class's docstring as a cell of a Markdown table."""
    text = " ".join((declared.__doc__ or "").split("\n\n")[0].split())
    plain = text[:1].lower() + text[1:]
    return plain.removesuffix(".")
