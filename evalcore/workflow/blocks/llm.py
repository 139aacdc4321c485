"""`llm`: one model call from a prompt template."""

from __future__ import annotations

from typing import Any

from evalcore.workflow.context import Context
from evalcore.workflow.definition import Block
from evalcore.workflow.values import text_of


async def run(block: Block, context: Context) -> Any:
    """Return the answer to the filled template; without one, to what the block sees as JSON."""
    template = block.fields.get("prompt_template")
    if template is None:
        text = text_of(context.data)
    else:
        text = context.fill(str(template), "prompt_template")
    return await context.ask(block.soul_ref, text)
