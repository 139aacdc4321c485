"""`llm`: one model call from a prompt template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from evalcore.workflow.definition import ModelBlock
from evalcore.workflow.values import text_of

if TYPE_CHECKING:
    from evalcore.workflow.context import Context


class LlmBlock(ModelBlock):
    """One model call with the filled template; the output is the answer."""

    needs: ClassVar[tuple[str, ...]] = ("prompt_template",)
    inputs_suffice: ClassVar[bool] = True
    is_text: ClassVar[bool] = True

    type: Literal["llm"]
    prompt_template: str | None = None

    def templates(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield the prompt."""
        if self.prompt_template is not None:
            yield ("prompt_template",), self.prompt_template

    async def run(self, context: Context) -> Any:
        """Return the answer to the filled template; without one, to what the block sees as JSON."""
        if self.prompt_template is None:
            text = text_of(context.data)
        else:
            text = context.fill(self.prompt_template, "prompt_template")
        return await context.ask(self.soul_ref, text)
