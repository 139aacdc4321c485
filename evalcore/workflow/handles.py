"""Handles: the ids by which saved evals address the inputs and outputs of a block."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal, NamedTuple

from evalcore.workflow.definition import Block

WHOLE_INPUT: Final = "input-json-0"
FIRST_OUTPUT: Final = "output-json-0"


class InputHandle(NamedTuple):
    """One input of a block; `name` is None for the object of all that the block sees."""

    handle_id: str
    name: str | None
    type: Literal["json", "file"]


def input_handles(inputs: Mapping[str, Any] | None) -> tuple[InputHandle, ...]:
    """Return a handle for each declared input, in order; JSON and documents count apart.

    `inputs` is what the block declares: names with paths, or with mappings that may say
    `type: file`. A block that declares none has one handle.
    """
    if not inputs:
        return (InputHandle(WHOLE_INPUT, None, "json"),)
    handles: list[InputHandle] = []
    for name, written in inputs.items():
        is_file = isinstance(written, Mapping) and written.get("type") == "file"
        kind: Literal["json", "file"] = "file" if is_file else "json"
        number = sum(handle.type == kind for handle in handles)
        noun = "document" if is_file else "json"
        handles.append(InputHandle(f"input-{noun}-{number}", name, kind))
    return tuple(handles)


def unknown_handles(block: Mapping[str, Any], names: Collection[str]) -> dict[str, str]:
    """Return what is wrong with each name that is no input handle of a written block, in order."""
    inputs = block.get("inputs")
    handles = input_handles(inputs if isinstance(inputs, Mapping) else None)
    listed = ", ".join(handle.handle_id for handle in handles)
    return {
        name: f"the block has no such input handle; it has {listed}"
        for name in names
        if all(name != handle.handle_id for handle in handles)
    }


def output_handle(exit_number: int | None) -> str:
    """Return the handle of the output, or of the exit of that number (from 0)."""
    return FIRST_OUTPUT if exit_number is None else f"output-json-{exit_number + 1}"


def block_outputs(block: Block, value: Any, outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the value of each output handle: of the block, and of the exits of a dispatch."""
    values = {output_handle(None): value}
    for number, member in enumerate(block.exits or () if block.type == "dispatch" else ()):
        text = outputs.get(f"{block.id}.{member.id}")
        if text is not None:
            values[output_handle(number)] = text
    return values


def block_handles(block: Block) -> tuple[InputHandle, ...]:
    """Return the input handles of a block."""
    sources = block.sources
    return input_handles(sources and {name: {"type": each.type} for name, each in sources.items()})
