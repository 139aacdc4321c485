"""`dispatch`: a model call for each exit, all at the same time."""

from __future__ import annotations

import asyncio
from typing import Any

from evalcore.workflow.context import Context
from evalcore.workflow.definition import Block, Exit


async def run(block: Block, context: Context) -> Any:
    """Return the answers by exit; each stands at `block.exit` as well.

    If calls fail, the others are waited for, and the first failing exit's error is raised.
    """
    group = len(context.calls)

    async def answer(exit_: Exit) -> str:
        given = context.given.get(f"{block.id}.{exit_.id}")
        if given is not None:
            return given
        text = context.message(exit_.task, f"exits.{exit_.id}.task")
        soul_ref = exit_.soul_ref or block.soul_ref
        return await context.ask(soul_ref, text, part=exit_.id, group=group)

    answers = await asyncio.gather(*map(answer, block.exits), return_exceptions=True)
    outputs: dict[str, Any] = {}
    for exit_, found in zip(block.exits, answers, strict=True):
        if isinstance(found, BaseException):
            raise found
        outputs[exit_.id] = found
    for name, text in outputs.items():
        context.state.outputs[f"{block.id}.{name}"] = text
    return outputs
