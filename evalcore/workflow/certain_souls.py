"""The souls that every execution of a workflow asks."""

from __future__ import annotations

from collections.abc import Iterator

from evalcore.workflow.definition import Block, ModelBlock, WorkflowDefinition
from evalcore.workflow.souls import Soul


def certain_souls(definition: WorkflowDefinition) -> Iterator[Soul]:
    """Yield the souls of the first blocks, up to the first one after which the ways part.

    A block with an `error_route` may fail without ending the workflow, so it is not among them.
    """
    block = definition.blocks.get(definition.entry)
    passed: set[str] = set()
    while block is not None and block.id not in passed and block.error_route is None:
        passed.add(block.id)
        soul = definition.souls.get(block.soul_ref or "") if isinstance(block, ModelBlock) else None
        if soul is not None:
            yield soul
        follower = None if _parts(definition, block) else definition.plain.get(block.id)
        block = definition.blocks.get(follower or "")


def _parts(definition: WorkflowDefinition, block: Block) -> bool:
    """Whether more than one block may follow."""
    return bool(block.branches or block.exit_conditions or definition.conditional.get(block.id))
