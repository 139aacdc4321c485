"""The types of blocks, and a workflow read from the mapping that a plan or a target holds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar

from pydantic import ValidationError

from evalcore.model.evidence import NOTHING
from evalcore.shapes import adapter
from evalcore.workflow import blocks
from evalcore.workflow.context import Context
from evalcore.workflow.definition import (
    Block,
    Checks,
    Graph,
    ModelBlock,
    Soul,
    WorkflowDefinition,
    WorkflowPart,
    WorkflowSections,
)
from evalcore.workflow.events import BlockError


class UnknownBlock(Block, extra="allow"):
    """A block of a type that this version does not have; it fails where it runs."""

    async def run(self, context: Context) -> Any:  # noqa: ARG002 - of a type
        """Raise `BlockError`."""
        raise BlockError("type", f"unknown type '{self.type}'; known: {', '.join(BLOCK_TYPES)}")


BLOCK_TYPES: Final[Mapping[str, type[Block]]] = MappingProxyType(
    {
        "llm": blocks.LlmBlock,
        "linear": blocks.LinearBlock,
        "gate": blocks.GateBlock,
        "synthesize": blocks.SynthesizeBlock,
        "dispatch": blocks.DispatchBlock,
        "code": blocks.CodeBlock,
        "http": blocks.HttpBlock,
        "loop": blocks.LoopBlock,
        "workflow": blocks.SubworkflowBlock,
    }
)


def block_class(kind: str) -> type[Block]:
    """Return the class of a type."""
    return BLOCK_TYPES.get(kind, UnknownBlock)


def asks_model(kind: object) -> bool:
    """Whether blocks of a type ask a model; what is no type does not."""
    return isinstance(kind, str) and issubclass(block_class(kind), ModelBlock)


P = TypeVar("P", bound=WorkflowPart)
_STORED: Final = (
    "id",
    "blocks",
    "souls",
    "workflow",
    "limits",
    "config",
    "inputs",
    "primary_output",
)
_SECTIONS: Final = ("workflow", "limits", "config", "inputs")


def behaviour_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the workflow does: no evals, nothing that is there for people only."""
    stored: dict[str, Any] = {key: raw[key] for key in _STORED if raw.get(key) is not None}
    for section, shape in (("souls", Soul), ("blocks", Block)):
        members = stored.get(section)
        if isinstance(members, Mapping):
            display_only = {name for name, info in shape.model_fields.items() if info.exclude}
            stored[section] = {
                name: {key: value for key, value in member.items() if key not in display_only}
                if isinstance(member, Mapping)
                else member
                for name, member in members.items()
            }
    return stored


def read_definition(raw: Mapping[str, Any], checks: Checks = NOTHING) -> WorkflowDefinition:
    """Return the definition; `checks` are the blocks' own assertions, already read.

    Keys that a block does not have are ignored. Raise `ValueError` (or `KeyError`, `TypeError`)
    where the mapping is no sound workflow.
    """
    written = raw.get("blocks") or {}
    if not written:
        raise ValueError("a workflow needs 'blocks'")
    sections = _read(WorkflowSections, {key: raw.get(key) for key in _SECTIONS}, "", extra="allow")
    graph = sections.workflow or Graph()
    default_model = None if sections.config is None else sections.config.model_name
    souls: dict[str, Soul] = {}
    for name, member in (raw.get("souls") or {}).items():
        soul = _read(Soul, {**member, "id": name}, f"souls.{name}", extra="allow")
        own = soul.model_name or default_model
        souls[name] = soul if own is None else soul.model_copy(update={"model_name": own})
    return WorkflowDefinition(
        blocks={
            name: _read(block_class(member["type"]), {**member, "id": name}, f"blocks.{name}")
            for name, member in written.items()
        },
        souls=souls,
        graph=graph,
        limits=sections.limits,
        primary_output=raw.get("primary_output"),
        inputs=sections.inputs or NOTHING,
        default_model=default_model,
        name=str(graph.name or raw.get("id") or "workflow"),
        checks=checks,
    )


def _read(
    shape: type[P],
    raw: Mapping[str, Any],
    where: str,
    *,
    extra: Literal["allow", "ignore"] = "ignore",
) -> P:
    """Return the part; a key without a value counts as left out."""
    written = {key: value for key, value in raw.items() if value is not None}
    try:
        part: P = adapter(shape).validate_python(written, strict=False, extra=extra)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        inner = [str(step) for step in first["loc"] if not str(step).startswith("<")]
        path = ".".join(filter(None, (where, *inner)))
        if first["type"] == "missing":
            raise ValueError(f"'{path}' is required") from error
        raise ValueError(f"{path}: {first['msg']}") from error
    return part
