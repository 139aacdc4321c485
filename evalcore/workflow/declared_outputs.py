"""Does a block's output have what the block declares under `outputs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from evalcore.mistakes.foreign_text import QUOTED_LENGTH, shorten
from evalcore.redaction.redactor import PROCESS
from evalcore.workflow.definition import Block
from evalcore.workflow.failure import BlockError
from evalcore.workflow.values import parsed

if TYPE_CHECKING:
    from jsonschema import ValidationError

_REASON_LENGTH: Final = 300
_SCHEMA_KEYS: Final = frozenset({"properties", "$schema", "anyOf", "oneOf", "allOf", "$ref"})


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _any(_: Any) -> bool:
    return True


_TEXT: Final[Callable[[Any], bool]] = lambda value: isinstance(value, str)  # noqa: E731
_LIST: Final[Callable[[Any], bool]] = lambda value: isinstance(value, list)  # noqa: E731
_BOOLEAN: Final[Callable[[Any], bool]] = lambda value: isinstance(value, bool)  # noqa: E731
_MAPPING: Final[Callable[[Any], bool]] = lambda value: isinstance(value, Mapping)  # noqa: E731

TYPE_NAMES: Final[Mapping[str, Callable[[Any], bool]]] = MappingProxyType(
    {
        **dict.fromkeys(("string", "str", "text"), _TEXT),
        **dict.fromkeys(("integer", "int"), _whole),
        **dict.fromkeys(("number", "float"), _number),
        **dict.fromkeys(("boolean", "bool"), _BOOLEAN),
        **dict.fromkeys(("array", "list"), _LIST),
        **dict.fromkeys(("object", "dict", "mapping", "map"), _MAPPING),
        **dict.fromkeys(("any", "json"), _any),
    }
)


def is_schema(declared: Mapping[str, Any]) -> bool:
    """Whether `outputs` is one JSON Schema of the whole output, not one entry per name."""
    return not _SCHEMA_KEYS.isdisjoint(declared)


def check_outputs(block: Block, value: Any) -> None:
    """Raise `BlockError` unless the output is what `outputs` declares: names with types or schemas.

    A `workflow` block's `outputs` say what to take from the other workflow, and declare nothing.
    """
    declared = block.outputs
    if not declared or not block.declares_outputs:
        return
    output = parsed(value)
    if is_schema(declared):
        _check_schema(output, declared, "the output")
        return
    if not isinstance(output, Mapping):
        names = ", ".join(declared)
        raise BlockError("outputs", f"declares the outputs {names}, but gave no mapping")
    for name, expected in declared.items():
        if name not in output:
            has = ", ".join(map(str, output)) or "nothing"
            raise BlockError("outputs", f"declares the output '{name}', but gave: {has}")
        if isinstance(expected, Mapping):
            _check_schema(output[name], expected, f"output '{name}'")
        elif not TYPE_NAMES.get(str(expected).lower(), _any)(output[name]):
            actual = type(output[name]).__name__
            raise BlockError(
                "outputs", f"output '{name}' is declared as {expected}, but is {actual}"
            )


def _check_schema(value: Any, schema: Mapping[str, Any], what: str) -> None:
    import jsonschema

    try:
        jsonschema.validate(value, dict(schema))
    except jsonschema.SchemaError as error:
        raise BlockError("outputs", f"{what}: its schema is invalid: {error.message}") from error
    except jsonschema.ValidationError as error:
        path = ".".join(map(str, error.absolute_path))
        where = f"{what} at '{path}'" if path else what
        raise BlockError("outputs", f"{where}: {_reason(error)}", retryable=True) from error


def _reason(error: ValidationError) -> str:
    """Return what does not fit: the value shortened, and covered before it is cut."""
    message, instance = PROCESS.message(error.message), PROCESS.message(repr(error.instance))
    if message.startswith(instance):
        message = shorten(instance, QUOTED_LENGTH) + message[len(instance) :]
    return shorten(message, _REASON_LENGTH)
