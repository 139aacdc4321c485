"""The parameters of a custom tool: types and defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, field_validator

from evalcore.jsonvalues import own_copy
from evalcore.scripts.iteration import ToolError
from evalcore.scripts.statements import MistakeCollector, ScriptPart, read_shape
from evalcore.shapes import Text
from evalcore.wording import Loc, describe

_PLAIN: Final[Mapping[str, Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "dict": dict[str, Any],
    "list": list[Any],
}
_TYPES: Final = "str, int, float, bool, dict, list, list[T], dict[K,V] or literal:a|b"
# Numbers become text where text is wanted; otherwise pydantic's lax rules.
_LAX: Final = ConfigDict(coerce_numbers_to_str=True, arbitrary_types_allowed=True)
_DEEPEST: Final = 10


class ToolParameter(ScriptPart):
    """A parameter of a tool: its type, and its default where it is not required."""

    name: Text
    description: Any = None
    type: Text = "str"
    default: Any = None

    @field_validator("type")
    @classmethod
    def _check_type(cls, written: str) -> str:
        python_type(written)
        return written

    @property
    def required(self) -> bool:
        """Whether a call has to name it."""
        return "default" not in self.model_fields_set

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """What validates its values."""
        return TypeAdapter(python_type(self.type), config=_LAX)


def python_type(text: str, depth: int = 0) -> Any:
    """Return the type that a text names; raise `ValueError` that says what may stand there."""
    text = text.strip()
    if text in _PLAIN:
        return _PLAIN[text]
    if text.startswith("literal:"):
        values = tuple(part.strip() for part in text.removeprefix("literal:").split("|"))
        if all(values):
            return Literal[values]
    inner = _parameters(text, "list")
    if inner is not None and len(inner) == 1 and depth < _DEEPEST:
        return list[python_type(inner[0], depth + 1)]  # type: ignore[misc]
    inner = _parameters(text, "dict")
    if inner is not None and len(inner) == 2 and depth < _DEEPEST:
        return dict[python_type(inner[0], depth + 1), python_type(inner[1], depth + 1)]  # type: ignore[misc]
    raise ValueError(f"unknown type '{text}'; write {_TYPES}")


def _parameters(text: str, name: str) -> list[str] | None:
    """Return what stands between the brackets of `name[a, b]`."""
    if not (text.startswith(f"{name}[") and text.endswith("]")):
        return None
    parts, depth = [""], 0
    for character in text[len(name) + 1 : -1]:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def read_parameters(raw: Any, loc: Loc, mistakes: MistakeCollector) -> tuple[ToolParameter, ...]:
    """Return the parameters of `input`; what is wrong is noted."""
    if not isinstance(raw, list):
        if raw is not None:
            message = f"expected a list of {{name, type}}, got {describe(raw)}"
            mistakes.add(loc, message)
        return ()
    parameters: dict[str, ToolParameter] = {}
    for index, member in enumerate(raw):
        parameter = read_shape(ToolParameter, member, (*loc, index), mistakes)
        if parameter is None:
            continue
        if parameter.name in parameters:
            mistakes.add((*loc, index, "name"), f"duplicate parameter '{parameter.name}'")
        parameters[parameter.name] = parameter
    return tuple(parameters.values())


def checked_input(
    tool: str, parameters: Sequence[ToolParameter], params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the values of the parameters; raise `ToolError` naming what is missing or wrong."""
    values: dict[str, Any] = {}
    for parameter in parameters:
        name = parameter.name
        if name not in params:
            if parameter.required:
                raise ToolError("ValidationError", f"{tool}: parameter '{name}' is required")
            values[name] = own_copy(parameter.default)
            continue
        try:
            values[name] = parameter.adapter.validate_python(params[name])
        except ValidationError as error:
            value = describe(params[name])
            reason = str(error.errors(include_url=False)[0]["msg"]).removeprefix("Input should be ")
            message = f"parameter '{name}' ({parameter.type}): expected {reason}, got {value}"
            raise ToolError("ValidationError", f"{tool}: {message}") from error
    return values


def json_schema(parameters: Sequence[ToolParameter]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's parameters, for a model that may call it."""
    properties = {}
    for parameter in parameters:
        schema = parameter.adapter.json_schema()
        if parameter.description:
            schema["description"] = str(parameter.description)
        properties[parameter.name] = schema
    required = [parameter.name for parameter in parameters if parameter.required]
    return {"type": "object", "properties": properties, "required": required}
