"""`gate`: a model call whose first line says pass or fail."""

from __future__ import annotations

from typing import Any, Final

from evalcore.workflow.context import Context
from evalcore.workflow.definition import Block
from evalcore.workflow.failure import BlockError
from evalcore.workflow.values import MISSING, at_path, text_of

_INSTRUCTION: Final = (
    "Decide whether the following content is good enough. Answer with PASS or FAIL on the first "
    "line, and with your reasons on the lines after it."
)


async def run(block: Block, context: Context) -> Any:
    """Return the whole answer on what `eval_key` names: an input, a block, or a path into one.

    A key that names neither (it may be that of the verdict in the answer) means all the block sees.
    """
    content = _content(block, context)
    extract = block.fields.get("extract_field")
    if extract is not None:
        content = at_path(content, str(extract))
        if content is MISSING:
            raise BlockError("input", f"extract_field: there is no '{extract}' in what is judged")
    return await context.ask(block.soul_ref, f"{_INSTRUCTION}\n\n{text_of(content)}")


def _content(block: Block, context: Context) -> Any:
    key = block.fields.get("eval_key")
    if key is None:
        return context.data
    for found in (at_path(context.inputs or {}, str(key)), context.state.find(str(key))):
        if found is not MISSING:
            return found
    if "." in key or key in context.definition.blocks:
        raise BlockError("input", f"eval_key: there is no '{key}'; {context.state.known()}")
    return context.data
