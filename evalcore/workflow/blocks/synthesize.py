"""`synthesize`: joins the outputs of earlier blocks in one model call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from evalcore.declared.types import NonEmpty
from evalcore.workflow.definition import ModelBlock
from evalcore.workflow.failure import BlockError
from evalcore.workflow.values import MISSING, text_of

if TYPE_CHECKING:
    from evalcore.workflow.context import Context
    from evalcore.workflow.names import Names, WorkflowMistake


class SynthesizeBlock(ModelBlock):
    """One model call with these outputs, each under `## id`; the output is the answer."""

    needs: ClassVar[tuple[str, ...]] = ("input_block_ids",)
    is_text: ClassVar[bool] = True

    type: Literal["synthesize"]
    input_block_ids: NonEmpty[str] | None = None

    def mistakes(self, names: Names) -> Iterator[WorkflowMistake]:
        """Yield the ids that name no block."""
        for number, name in enumerate(self.input_block_ids or ()):
            yield from names.reference(name, ("input_block_ids", number))

    async def run(self, context: Context) -> Any:
        """Return the answer to the outputs, each below its block's id; declared inputs follow."""
        parts = []
        for name in self.input_block_ids or ():
            output = context.state.find(name)
            if output is MISSING:
                names = context.state.known_names()
                message = f"input_block_ids: block '{name}' has no output; {names}"
                raise BlockError("input", message)
            parts.append(f"## {name}\n{text_of(output)}")
        if context.inputs:
            parts.append(f"## inputs\n{text_of(context.inputs)}")
        return await context.ask(self.soul_ref, "\n\n".join(parts))
