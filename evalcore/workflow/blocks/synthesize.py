"""`synthesize`: joins the outputs of earlier blocks in one model call."""

from __future__ import annotations

from typing import Any

from evalcore.workflow.context import Context
from evalcore.workflow.definition import Block
from evalcore.workflow.failure import BlockError
from evalcore.workflow.values import MISSING, text_of


async def run(block: Block, context: Context) -> Any:
    """Return the answer to the outputs, each below its block's id; declared inputs follow."""
    parts = []
    for name in block.fields.get("input_block_ids") or ():
        found = context.state.find(name)
        if found is MISSING:
            known = context.state.known()
            message = f"input_block_ids: block '{name}' has no output; {known}"
            raise BlockError("input", message)
        parts.append(f"## {name}\n{text_of(found)}")
    if context.inputs:
        parts.append(f"## inputs\n{text_of(context.inputs)}")
    return await context.ask(block.soul_ref, "\n\n".join(parts))
