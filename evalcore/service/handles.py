"""The handles of a workflow's blocks: their inputs and outputs as evals address them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.checks.conditions.eval_assertion import JsonHandle
from evalcore.service.wire.workflows import BlockHandle, WorkflowBlock

_SCHEMA_KEYS: Final = frozenset({"properties", "$schema", "anyOf", "oneOf", "allOf", "$ref"})
_JSON_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int"), "integer"),
    **dict.fromkeys(("number", "float"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list"), "array"),
    **dict.fromkeys(("object", "dict", "mapping", "map"), "object"),
}
FIRST_OUTPUT: Final = "output-json-0"
WHOLE_INPUT: Final = "input-json-0"


def blocks_of(definition: Mapping[str, Any]) -> list[WorkflowBlock]:
    """Return the blocks of a definition with their handles, in the order of the file."""
    blocks: Mapping[str, Mapping[str, Any]] = definition.get("blocks") or {}
    return [
        WorkflowBlock(
            id=name,
            type=str(block.get("type")),
            inputs=input_handles(block),
            outputs=output_handles(block),
        )
        for name, block in blocks.items()
    ]


def input_handles(block: Mapping[str, Any]) -> list[BlockHandle]:
    """Return a handle for each declared input; one for all that it sees if none is declared.

    Handles are numbered in the order of the inputs, JSON and documents apart.
    """
    inputs: Mapping[str, Any] | None = block.get("inputs")
    if not inputs:
        return [BlockHandle(handle_id=WHOLE_INPUT, name="inputs", type="json", schema=None)]
    handles: list[BlockHandle] = []
    for name, written in inputs.items():
        is_file = isinstance(written, Mapping) and written.get("type") == "file"
        kind = "document" if is_file else "json"
        number = sum(handle.type == ("file" if is_file else "json") for handle in handles)
        schema = written.get("schema") if isinstance(written, Mapping) else None
        handles.append(
            BlockHandle(
                handle_id=f"input-{kind}-{number}",
                name=name,
                type="file" if is_file else "json",
                schema=schema if isinstance(schema, Mapping) else None,
            )
        )
    return handles


def output_handles(block: Mapping[str, Any]) -> list[BlockHandle]:
    """Return the output handle, and of a dispatch block one for each exit."""
    schema = output_schema(block)
    handles = [BlockHandle(handle_id=FIRST_OUTPUT, name="output", type="json", schema=schema)]
    if block.get("type") == "dispatch":
        for number, member in enumerate(block.get("exits") or (), start=1):
            handles.append(
                BlockHandle(
                    handle_id=f"output-json-{number}",
                    name=str(member.get("id")),
                    type="json",
                    schema=None,
                )
            )
    return handles


def output_schema(block: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of a block's output: declared, or that of its type; None if unknown.

    `outputs` is a JSON Schema of the whole, or names with types or schemas. A `workflow` block's
    `outputs` say what it takes from the other workflow, and declare nothing.
    """
    declared = block.get("outputs")
    if not isinstance(declared, Mapping) or not declared or block.get("type") == "workflow":
        return None
    if not _SCHEMA_KEYS.isdisjoint(declared):
        return dict(declared)
    return {
        "type": "object",
        "properties": {name: _property(written) for name, written in declared.items()},
        "required": list(declared),
    }


def _property(written: Any) -> dict[str, Any]:
    if isinstance(written, Mapping):
        return dict(written)
    named = _JSON_TYPES.get(str(written).lower())
    return {} if named is None else {"type": named}


def output_values(
    block: Mapping[str, Any], value: Any, exits: Mapping[str, Any]
) -> dict[str, JsonHandle]:
    """Return a block's output by handle; `exits` are those of a dispatch block by their ids."""
    values = {FIRST_OUTPUT: JsonHandle(type="json", data=value)}
    for handle in output_handles(block)[1:]:
        if handle.name in exits:
            values[handle.handle_id] = JsonHandle(type="json", data=exits[handle.name])
    return values
