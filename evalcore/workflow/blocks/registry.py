"""The table of block types: where the class of each stands."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from evalcore.declared.base import fields_cell, summary
from evalcore.workflow.definition import Block, ModelBlock
from evalcore.workflow.failure import BlockError

if TYPE_CHECKING:
    from evalcore.workflow.context import Context

BLOCK_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "llm": "LlmBlock",
        "linear": "LinearBlock",
        "gate": "GateBlock",
        "synthesize": "SynthesizeBlock",
        "dispatch": "DispatchBlock",
        "code": "CodeBlock",
        "http": "HttpBlock",
        "loop": "LoopBlock",
        "workflow": "SubworkflowBlock",
    }
)


class UnknownBlock(Block, extra="allow"):
    """A block of a type that this version does not have; it fails where it runs."""

    async def run(self, context: Context) -> Any:  # noqa: ARG002 - of a type
        """Raise `BlockError`."""
        raise BlockError("type", f"unknown type '{self.type}'; known: {', '.join(BLOCK_TYPES)}")


def block_class(kind: str) -> type[Block]:
    """Return the class of a type; it stands in the module of that name."""
    if kind not in BLOCK_TYPES:
        return UnknownBlock
    module = import_module(f"evalcore.workflow.blocks.{kind}")
    return cast("type[Block]", getattr(module, BLOCK_TYPES[kind]))


def blocks_table() -> str:
    """Return the table of block types in docs/reference/workflow-engine.md."""
    rows = ["| type | own fields | does |", "|---|---|---|"]
    for kind in BLOCK_TYPES:
        block = block_class(kind)
        # Keys that blocks of every type have are shown with those that need them.
        shared = tuple(key for key in Block.model_fields if key not in block.needs)
        rows.append(f"| `{kind}` | {fields_cell(block, shared)} | {summary(block)} |")
    return "\n".join(rows)


def asks_model(kind: object) -> bool:
    """Whether blocks of a type ask a model; what is no type does not."""
    return isinstance(kind, str) and issubclass(block_class(kind), ModelBlock)
