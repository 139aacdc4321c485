"""`loop`: other blocks, one after another, round after round."""

from __future__ import annotations

from typing import Any

from evalcore.workflow.conditions import holds
from evalcore.workflow.context import Context
from evalcore.workflow.definition import DEFAULT_ROUNDS, Block, Carry, carry_of, condition_group
from evalcore.workflow.events import EventType
from evalcore.workflow.routing import looker


async def run(block: Block, context: Context) -> Any:
    """Return the output of the last inner block that ran.

    It ends after `max_rounds`, at an inner block's exit `break_on_exit`, or when
    `break_condition` holds for the last inner block's output. The exit `retry_on_exit` begins the
    next round at once.
    """
    inner = tuple(block.fields.get("inner_block_refs") or ())
    rounds = int(block.fields.get("max_rounds") or DEFAULT_ROUNDS)
    carry = carry_of(block.fields.get("carry_context"), inner)
    until = condition_group(block.fields.get("break_condition"))
    shared = context.state.shared
    history: list[dict[str, Any]] = []
    value: Any = None
    reason, number = "max_rounds reached", 0
    if carry is not None:
        shared[carry.name] = [] if carry.all_rounds else {}
    for number in range(1, rounds + 1):
        shared[f"{block.id}_round"] = number
        await context.log.add(EventType.LOOP_ROUND, context.place, round=number)
        value, handle = await _round(block, context, inner)
        if handle is not None and handle == block.fields.get("break_on_exit"):
            reason = f"exit '{handle}'"
            break
        if carry is not None:
            _carry(carry, context, history)
        if handle is not None and handle == block.fields.get("retry_on_exit"):
            continue
        if until is not None and holds(until, looker(value, context.state)):
            reason = "condition met"
            break
    shared[f"__loop__{block.id}"] = {
        "rounds_completed": number,
        "broke_early": reason != "max_rounds reached",
        "break_reason": reason,
    }
    return value


async def _round(block: Block, context: Context, inner: tuple[str, ...]) -> tuple[Any, str | None]:
    """Run the inner blocks; return the last output, and the exit that ended the round early."""
    ends = {block.fields.get("break_on_exit"), block.fields.get("retry_on_exit")} - {None}
    value: Any = None
    for name in inner:
        value, handle = await context.run_inner(name)
        if handle in ends:
            return value, handle
    return value, None


def _carry(carry: Carry, context: Context, history: list[dict[str, Any]]) -> None:
    outputs = context.state.outputs
    history.append({name: outputs[name] for name in carry.blocks if name in outputs})
    context.state.shared[carry.name] = list(history) if carry.all_rounds else history[-1]
