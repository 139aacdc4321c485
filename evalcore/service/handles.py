"""The handles of a workflow's blocks: their inputs and outputs as evals address them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.service.wire.workflows import BlockHandle, WorkflowBlock
from evalcore.workflow.handles import FIRST_OUTPUT, input_handles, output_handle
from evalcore.workflow.values import is_schema

_JSON_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("string", "str", "text"), "string"),
    **dict.fromkeys(("integer", "int"), "integer"),
    **dict.fromkeys(("number", "float"), "number"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list"), "array"),
    **dict.fromkeys(("object", "dict", "mapping", "map"), "object"),
}


def blocks_of(definition: Mapping[str, Any]) -> list[WorkflowBlock]:
    """Return the blocks of a definition with their handles, in the order of the file."""
    blocks: Mapping[str, Mapping[str, Any]] = definition.get("blocks") or {}
    return [
        WorkflowBlock(
            id=name,
            type=str(block.get("type")),
            inputs=_inputs(block),
            outputs=output_handles(block),
        )
        for name, block in blocks.items()
    ]


def _inputs(block: Mapping[str, Any]) -> list[BlockHandle]:
    """Return a handle for each declared input; one for all that it sees if none is declared."""
    return [
        BlockHandle(
            handle_id=handle.handle_id, name=handle.name or "inputs", type=handle.type, schema=None
        )
        for handle in input_handles(block.get("inputs"))
    ]


def output_handles(block: Mapping[str, Any]) -> list[BlockHandle]:
    """Return the output handle, and of a dispatch block one for each exit."""
    schema = output_schema(block)
    handles = [BlockHandle(handle_id=FIRST_OUTPUT, name="output", type="json", schema=schema)]
    if block.get("type") == "dispatch":
        for number, member in enumerate(block.get("exits") or ()):
            handles.append(
                BlockHandle(
                    handle_id=output_handle(number),
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
    if is_schema(declared):
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
