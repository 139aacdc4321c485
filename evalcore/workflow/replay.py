"""Run one block of a workflow by itself, with inputs that were frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evalcore.workflow.context import EngineServices
from evalcore.workflow.definition import Block, WorkflowDefinition
from evalcore.workflow.engine import WorkflowExecution
from evalcore.workflow.events import BlockError, ProviderCall, WorkflowError
from evalcore.workflow.handles import block_outputs, declared_inputs, input_handles
from evalcore.workflow.run_store import EventLog
from evalcore.workflow.values import WorkflowState


@dataclass(frozen=True, slots=True)
class BlockReplay:
    """What a replayed block gave: its output, the outputs by handle, and its model calls."""

    value: Any
    outputs: Mapping[str, Any]
    calls: tuple[ProviderCall, ...]


async def replay_block(
    definition: WorkflowDefinition,
    block_id: str,
    inputs: Mapping[str, Any],
    services: EngineServices,
) -> BlockReplay:
    """Run a block on the values of its input handles; nothing before or after it runs.

    A handle without a value has the default of its input. Raises `WorkflowError` if there is no
    such block or it fails, and what `run_workflow` raises beside it.
    """
    block = definition.blocks.get(block_id)
    if block is None:
        raise WorkflowError("workflow", f"the workflow has no block '{block_id}'")
    if lacking := _handles_without_value(block, inputs):
        raise WorkflowError("workflow", f"block '{block_id}': {lacking}")
    execution = WorkflowExecution(
        definition, services, _state(block, inputs), EventLog(services.store)
    )
    try:
        value = await execution.run_block(_frozen(block))
    except BlockError as error:
        raise WorkflowError("workflow", f"block '{block_id}': {error}") from error
    outputs = block_outputs(block, value, execution.state.outputs)
    return BlockReplay(value, outputs, tuple(execution.calls))


def _handles_without_value(block: Block, inputs: Mapping[str, Any]) -> str:
    """Return which handles of a block have neither a value nor a default; empty if all have one."""
    sources = block.sources or {}
    lacking = [
        f"'{handle.handle_id}' (input '{handle.name}')"
        for handle in input_handles(declared_inputs(block))
        if handle.name is not None
        and handle.handle_id not in inputs
        and not sources[handle.name].has_default
    ]
    if not lacking:
        return ""
    rest = ", ".join(inputs) or "none"
    return f"no value for {', '.join(lacking)}; the eval has values for {rest}"


def _state(block: Block, inputs: Mapping[str, Any]) -> WorkflowState:
    """Return what the block sees: declared inputs by name, or all of the object's keys."""
    handles = input_handles(declared_inputs(block))
    values = {
        handle.name: inputs[handle.handle_id] for handle in handles if handle.handle_id in inputs
    }
    if None not in values:
        return WorkflowState({name: value for name, value in values.items() if name is not None})
    whole = values[None]
    members = dict(whole) if isinstance(whole, Mapping) else {"input": whole}
    state = WorkflowState(members)
    # Blocks inside a loop name outputs of blocks before it.
    state.outputs.update(members)
    return state


def _frozen(block: Block) -> Block:
    """Return the block with its inputs taken from what was frozen."""
    if block.sources is None:
        return block
    frozen = {
        name: source.model_copy(update={"path": f"workflow.{name}"})
        for name, source in block.sources.items()
    }
    # `sources` is cached: a copy would keep what it was.
    return block.model_copy(update={"inputs": frozen, "sources": frozen})
