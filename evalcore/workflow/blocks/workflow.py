"""`workflow`: another workflow as one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from evalcore.declared.types import Text
from evalcore.workflow.definition import MAX_DEPTH, Block
from evalcore.workflow.failure import BlockError
from evalcore.workflow.interface import SHARED, interface_inputs
from evalcore.workflow.values import MISSING, WorkflowState

if TYPE_CHECKING:
    from evalcore.workflow.context import Context
    from evalcore.workflow.definition import WorkflowDefinition


class SubworkflowBlock(Block):
    """Runs another workflow, which sees only its `inputs`; the output is what `outputs` takes."""

    needs: ClassVar[tuple[str, ...]] = ("workflow_ref",)
    declares_outputs: ClassVar[bool] = False

    type: Literal["workflow"]
    workflow_ref: Text
    max_depth: Annotated[int, Field(ge=1, le=MAX_DEPTH)] = MAX_DEPTH
    on_error: Literal["raise", "catch"] = "raise"

    async def run(self, context: Context) -> Any:
        """Return what `outputs` takes from the other workflow, by name; else its primary output.

        The other workflow knows only the declared inputs. With `on_error: catch` its failure is the
        output `{exit_handle: error, error}`.
        """
        reference = self.workflow_ref
        definition = context.services.workflows.get(reference)
        if definition is None:
            names = ", ".join(context.services.workflows) or "none"
            message = f"workflow_ref: there is no workflow '{reference}'; known: {names}"
            raise BlockError("workflow", message)
        inputs = context.inputs or {}
        _check_inputs(definition, inputs)
        try:
            value, state = await context.run_child(definition, inputs, self.max_depth)
        except BlockError as error:
            if self.on_error == "catch" and error.kind != "limit":
                return {"exit_handle": "error", "error": str(error)}
            raise
        if not self.outputs:
            return value
        outputs = {}
        for name, source in self.outputs.items():
            plain = name
            for prefix in ("results.", *SHARED):
                plain = plain.removeprefix(prefix)
            outputs[plain] = _output(definition, state, source, name)
            if plain != name:
                context.state.shared[plain] = outputs[plain]
        return outputs


def _check_inputs(definition: WorkflowDefinition, inputs: Mapping[str, Any]) -> None:
    """Raise `BlockError` for an input that the other workflow requires and does not get."""
    for item in interface_inputs(definition.inputs, definition.interface):
        if item.required and item.default is None and item.name not in inputs:
            message = f"workflow '{definition.name}' needs the input '{item.name}'"
            raise BlockError("input", message)


def _output(definition: WorkflowDefinition, state: WorkflowState, source: Any, name: str) -> Any:
    path = source if isinstance(source, str) else source["from"]
    for item in definition.interface.outputs or ():
        if item.name == path:
            path = item.source
            break
    value = state.find(path)
    if value is MISSING:
        message = f"outputs.{name}: workflow '{definition.name}' has no '{path}'"
        raise BlockError("output", f"{message}; {state.known_names()}")
    return value
