"""`loop`: other blocks, one after another, round after round."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from evalcore.declared.types import NonEmpty, Text
from evalcore.mistakes.wording import suggest
from evalcore.workflow.conditions import holds
from evalcore.workflow.definition import Block, Carry, Conditions, group_of
from evalcore.workflow.events import EventType
from evalcore.workflow.names import WorkflowMistake, condition_mistakes
from evalcore.workflow.routing import looker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evalcore.workflow.context import Context
    from evalcore.workflow.names import Names


def _is_mapping(value: object) -> str:
    return "<mapping>" if isinstance(value, dict) else "<flag>"


class LoopBlock(Block):
    """Runs these blocks in their order, up to `max_rounds` times; the output is the last one's."""

    needs: ClassVar[tuple[str, ...]] = ("inner_block_refs",)

    type: Literal["loop"]
    inner_block_refs: NonEmpty[str]
    max_rounds: Annotated[int, Field(ge=1, le=1000)] = 5
    break_condition: Conditions | None = None
    break_on_exit: Text | None = None
    retry_on_exit: Text | None = None
    carry_context: (
        Annotated[
            Annotated[bool, Tag("<flag>")] | Annotated[Carry, Tag("<mapping>")],
            Discriminator(_is_mapping),
        ]
        | None
    ) = None

    @cached_property
    def carry(self) -> Carry | None:
        """What is carried from round to round; None if nothing is."""
        written = Carry() if self.carry_context is True else self.carry_context
        return written if isinstance(written, Carry) and written.enabled else None

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:
        """Yield unknown inner blocks, a loop within itself, and what is wrong with conditions."""
        inner = self.inner_block_refs
        for number, name in enumerate(inner):
            yield from names.block(name, ("inner_block_refs", number))
            if _contains(names.blocks, name, self.id, frozenset()):
                message = f"the loop '{self.id}' would run itself"
                yield WorkflowMistake(("inner_block_refs", number), message)
        yield from condition_mistakes(self.break_condition, ("break_condition",))
        if isinstance(self.carry_context, Carry):
            for number, name in enumerate(self.carry_context.source_blocks or ()):
                if name not in inner:
                    message = f"'{name}' is not one of 'inner_block_refs'.{suggest(name, inner)}"
                    yield WorkflowMistake(("carry_context", "source_blocks", number), message)

    async def run(self, context: Context) -> Any:
        """Return the output of the last inner block that ran.

        It ends after `max_rounds`, at an inner block's exit `break_on_exit`, or when
        `break_condition` holds for the last inner block's output. The exit `retry_on_exit` begins
        the next round at once.
        """
        until = group_of(self.break_condition)
        shared = context.state.shared
        history: list[dict[str, Any]] = []
        value: Any = None
        reason, number = "max_rounds reached", 0
        if self.carry is not None:
            shared[self.carry.inject_as] = [] if self.carry.mode == "all" else {}
        for number in range(1, self.max_rounds + 1):
            shared[f"{self.id}_round"] = number
            await context.log.add(EventType.LOOP_ROUND, context.path, round=number)
            value, handle = await self._round(context)
            if handle is not None and handle == self.break_on_exit:
                reason = f"exit '{handle}'"
                break
            self._carry(context, history)
            if handle is not None and handle == self.retry_on_exit:
                continue
            if until is not None and holds(until, looker(value, context.state)):
                reason = "condition met"
                break
        shared[f"__loop__{self.id}"] = {
            "rounds_completed": number,
            "broke_early": reason != "max_rounds reached",
            "break_reason": reason,
        }
        return value

    async def _round(self, context: Context) -> tuple[Any, str | None]:
        """Run the inner blocks; return the last output, and the exit that ended the round early."""
        ends = {self.break_on_exit, self.retry_on_exit} - {None}
        value: Any = None
        for name in self.inner_block_refs:
            value, handle = await context.run_inner(name)
            if handle in ends:
                return value, handle
        return value, None

    def _carry(self, context: Context, history: list[dict[str, Any]]) -> None:
        carry = self.carry
        if carry is None:
            return
        outputs = context.state.outputs
        carried = carry.source_blocks or self.inner_block_refs
        history.append({name: outputs[name] for name in carried if name in outputs})
        latest = list(history) if carry.mode == "all" else history[-1]
        context.state.shared[carry.inject_as] = latest


def _contains(blocks: Mapping[str, Block], name: str, loop: str, passed: frozenset[str]) -> bool:
    if name == loop:
        return True
    block = blocks.get(name)
    inner = block.inner_block_refs if isinstance(block, LoopBlock) else ()
    below = [other for other in inner if other not in passed]
    return any(_contains(blocks, other, loop, passed | {name}) for other in below)
