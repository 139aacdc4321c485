"""`linear`: one model call on the block's inputs."""

from __future__ import annotations

from typing import Any

from evalcore.workflow.context import Context
from evalcore.workflow.definition import Block
from evalcore.workflow.values import text_of


async def run(block: Block, context: Context) -> Any:
    """Return the answer to the JSON of the inputs."""
    return await context.ask(block.soul_ref, text_of(context.data))
