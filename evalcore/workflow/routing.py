"""Which exit a block took, and which block comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from evalcore.workflow.conditions import Look, holds, search
from evalcore.workflow.definition import Block, WorkflowDefinition, group_of
from evalcore.workflow.values import (
    MISSING,
    WorkflowState,
    at_path,
    parsed,
    text_of,
)


class NextBlock(NamedTuple):
    """Where the workflow goes on (None: it ends), and which rule said so."""

    to: str | None
    by: str
    decision: str | None = None


def exit_handle(block: Block, value: Any, state: WorkflowState) -> str | None:
    """Return the exit that the block's output names.

    A gate's is its verdict. Else the first of the `exit_conditions` that fits; else the member
    `exit_handle` of a mapping.
    """
    stated = block.stated_exit(value)
    if stated is not None:
        return stated
    text = text_of(value)
    for rule in block.exit_conditions or ():
        when = group_of(rule.when)
        fits = [
            rule.contains is None or rule.contains in text,
            rule.regex is None or search(rule.regex, text),
            when is None or holds(when, looker(value, state)),
        ]
        if all(fits):
            return rule.exit_handle
    members = parsed(value)
    handle = members.get("exit_handle") if isinstance(members, Mapping) else None
    return handle if isinstance(handle, str) and handle else None


def looker(value: Any, state: WorkflowState) -> Look:
    """Return how conditions look into a block's output.

    A path that leads nowhere in it may name a block or a workflow input.
    """
    output = parsed(value)

    def look(path: str | None) -> Any:
        if path is None:
            return output
        member = at_path(output, path)
        return state.find(path) if member is MISSING and "." in path else member

    return look


def next_block(
    definition: WorkflowDefinition,
    block: Block,
    value: Any,
    handle: str | None,
    state: WorkflowState,
) -> NextBlock:
    """Return where the workflow goes on.

    The exit handle decides; else the first condition that holds; else the default of the
    conditional transitions (or of the routes); else the plain transition; else it ends.
    """
    edges = definition.conditional.get(block.id, {})
    named = {branch.decision: branch for branch in block.branches if branch.decision}
    if handle is not None:
        if handle in named and named[handle].goto:
            return NextBlock(named[handle].goto, "exit", handle)
        if handle in edges:
            return NextBlock(edges[handle], "exit", handle)
    look = looker(value, state)
    for branch in block.branches:
        if branch.when is not None and holds(branch.when, look):
            if branch.goto is not None:
                return NextBlock(branch.goto, "condition", branch.decision)
            if branch.decision is not None and branch.decision in edges:
                return NextBlock(edges[branch.decision], "condition", branch.decision)
            break
    return _fallback(definition, block, value, edges)


def _fallback(
    definition: WorkflowDefinition, block: Block, value: Any, edges: Mapping[str, str | None]
) -> NextBlock:
    for decision in _stated_decision(value):
        if decision in edges and decision != "default":
            return NextBlock(edges[decision], "output", decision)
    for branch in block.branches:
        if branch.when is not None or branch.is_verdict:
            continue
        if branch.goto is not None:
            return NextBlock(branch.goto, "default", branch.decision)
        if branch.decision is not None and branch.decision in edges:
            return NextBlock(edges[branch.decision], "default", branch.decision)
    if "default" in edges:
        return NextBlock(edges["default"], "default")
    if block.id in definition.plain:
        return NextBlock(definition.plain[block.id], "transition")
    return NextBlock(None, "end")


def _stated_decision(value: Any) -> tuple[str, ...]:
    """Return the decision that an output states: its whole text, or what stands at `decision`."""
    output = parsed(value)
    stated = output.get("decision") if isinstance(output, Mapping) else output
    return (text_of(stated).strip(),) if isinstance(stated, str | bool | int) else ()
