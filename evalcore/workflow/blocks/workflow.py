"""`workflow`: another workflow as one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.workflow.context import Context
from evalcore.workflow.definition import Block, Definition, input_ref
from evalcore.workflow.failure import BlockError
from evalcore.workflow.values import MISSING, State


async def run(block: Block, context: Context) -> Any:
    """Return what `outputs` takes from the other workflow, by name; without, its primary output.

    The other workflow knows only the inputs it is given. With `on_error: catch` its failure is the
    output `{exit_handle: error, error}`.
    """
    reference = block.text("workflow_ref")
    definition = context.services.workflows.get(reference)
    if definition is None:
        known = ", ".join(context.services.workflows) or "none"
        message = f"workflow_ref: there is no workflow '{reference}'; known: {known}"
        raise BlockError("workflow", message)
    inputs = _inputs(definition, context.inputs or {})
    try:
        value, state = await context.run_child(definition, inputs)
    except BlockError as error:
        if block.fields.get("on_error") == "catch" and error.kind != "limit":
            return {"exit_handle": "error", "error": str(error)}
        raise
    wanted = block.fields.get("outputs")
    if not wanted:
        return value
    taken = {}
    for name, source in wanted.items():
        plain = name.removeprefix("results.").removeprefix("shared_memory.")
        taken[plain] = _taken(definition, state, source, name)
        if plain != name:
            context.state.shared[plain] = taken[plain]
    return taken


def _inputs(definition: Definition, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs with the defaults of the other workflow's interface."""
    inputs = dict(given)
    for item in definition.interface.get("inputs") or ():
        name = item["name"]
        if name in inputs:
            continue
        if item.get("default") is not None:
            inputs[name] = item["default"]
        elif item.get("required", True):
            raise BlockError("input", f"workflow '{definition.name}' needs the input '{name}'")
    return inputs


def _taken(definition: Definition, state: State, source: Any, name: str) -> Any:
    path = input_ref(source).path
    for item in definition.interface.get("outputs") or ():
        if item["name"] == path:
            path = item["source"]
            break
    found = state.find(path)
    if found is MISSING:
        message = f"outputs.{name}: workflow '{definition.name}' has no '{path}'; {state.known()}"
        raise BlockError("output", message)
    return found
