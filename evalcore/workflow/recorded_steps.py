"""Records each run of a block, its inputs and outputs by handle, so that it can be replayed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from evalcore.workflow.definition import Block
from evalcore.workflow.failure import BlockError
from evalcore.workflow.handles import WHOLE_INPUT, input_handles, output_handle

if TYPE_CHECKING:
    from evalcore.workflow.engine import WorkflowExecution

Inputs = Callable[["WorkflowExecution", Block], "dict[str, Any] | None"]


async def record_step(
    execution: WorkflowExecution,
    block: Block,
    inputs_of: Inputs,
    run: Callable[[WorkflowExecution, Block], Awaitable[Any]],
) -> Any:
    """Return what `run` returns, and append a step to the execution's, also if it fails.

    A step is a JSON object: `block_id`, `block_type`, `round` (from 1; None outside of loops),
    `started_us` and `ended_us` since the epoch, `inputs` and `outputs` by handle, `error`.
    """
    steps = execution.services.steps
    assert steps is not None  # noqa: S101 - else nothing is recorded
    step: dict[str, Any] = {
        "block_id": block.id,
        "block_type": block.type,
        "round": _round(execution, block),
        "started_us": time.time_ns() // 1000,
        "inputs": _inputs(execution, block, inputs_of),
        "outputs": None,
        "error": None,
    }
    steps.append(step)
    try:
        value = await run(execution, block)
    except BlockError as error:
        step["error"] = {"code": error.kind, "message": str(error)}
        raise
    finally:
        step["ended_us"] = time.time_ns() // 1000
    step["outputs"] = block_outputs(block, value, execution.state.outputs)
    return value


def block_outputs(block: Block, value: Any, outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the value of each output handle: of the block, and of the exits of a dispatch."""
    values = {output_handle(None): value}
    for number, member in enumerate(block.exits or () if block.type == "dispatch" else ()):
        text = outputs.get(f"{block.id}.{member.id}")
        if text is not None:
            values[output_handle(number)] = text
    return values


def declared_inputs(block: Block) -> dict[str, Any] | None:
    """Return the declared inputs with their types, as `input_handles` takes them."""
    if block.sources is None:
        return None
    return {name: {"type": source.type} for name, source in block.sources.items()}


def _inputs(execution: WorkflowExecution, block: Block, inputs_of: Inputs) -> dict[str, Any]:
    try:
        values = inputs_of(execution, block)
    except BlockError:  # the block fails for the same reason
        return {}
    if values is None:
        return {WHOLE_INPUT: execution.state.everything()}
    handles = input_handles(declared_inputs(block))
    return {handle.handle_id: values[handle.name] for handle in handles if handle.name in values}


def _round(execution: WorkflowExecution, block: Block) -> int | None:
    for loop in execution.definition.blocks.values():
        if block.id in (getattr(loop, "inner_block_refs", None) or ()):
            number = execution.state.shared.get(f"{loop.id}_round")
            return int(number) if number is not None else None
    return None
