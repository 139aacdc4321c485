"""`linear`: one model call on the block's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from evalcore.workflow.definition import ModelBlock
from evalcore.workflow.values import text_of

if TYPE_CHECKING:
    from evalcore.workflow.context import Context


class LinearBlock(ModelBlock):
    """One model call with the JSON of the block's inputs; the output is the answer."""

    is_text: ClassVar[bool] = True

    type: Literal["linear"]

    async def run(self, context: Context) -> Any:
        """Return the answer to the JSON of the inputs."""
        return await context.ask(self.soul_ref, text_of(context.data))
