"""What a workflow takes and gives: declared inputs with defaults, outputs, settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

from pydantic import model_validator

from evalcore.declared.types import Listed, Text
from evalcore.workflow.part import WorkflowPart

SHARED: Final = ("shared_memory.", "metadata.")
_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "string": str,
    "number": (int, float),
    "boolean": bool,
    "json": dict,
    "array": list,
}


class WorkflowInput(WorkflowPart):
    """An input of a workflow: its type, and the value that it has where a case gives none."""

    type: Literal["string", "number", "boolean", "json", "array"] | None = None
    required: bool = True
    default: Any = None
    description: str | None = None
    sensitive: bool = False

    @model_validator(mode="after")
    def _check_default(self) -> WorkflowInput:
        if self.default is None or self.type is None:
            return self
        is_flag = isinstance(self.default, bool) and self.type != "boolean"
        if is_flag or not isinstance(self.default, _TYPES[self.type]):
            raise ValueError(f"the default is not of the type '{self.type}'")
        return self


class InterfaceInput(WorkflowPart):
    """An input in the list form; `target` is the shared value that it becomes."""

    name: Text
    target: Text | None = None
    type: str | None = None
    required: bool = True
    default: Any = None
    description: str | None = None


class InterfaceOutput(WorkflowPart):
    """An output in the list form: a name for a reference."""

    name: Text
    source: Text
    type: str | None = None
    description: str | None = None


class Interface(WorkflowPart):
    """What a workflow takes and gives where other workflows call it."""

    inputs: Listed[InterfaceInput] | None = None
    outputs: Listed[InterfaceOutput] | None = None


class WorkflowConfig(WorkflowPart, extra="allow"):
    """Settings of a workflow: `model_name` is the model of souls that name none."""

    model_name: str | None = None


class DeclaredInput(NamedTuple):
    """An input of a workflow, of either form; `shared` is the shared value that it becomes."""

    name: str
    default: Any
    required: bool
    shared: str | None = None


def interface_inputs(
    inputs: Mapping[str, WorkflowInput], interface: Interface
) -> Iterator[DeclaredInput]:
    """Yield the inputs that `inputs` and `interface` declare."""
    for name, declared in inputs.items():
        yield DeclaredInput(name, declared.default, declared.required)
    for item in interface.inputs or ():
        prefix = next((each for each in SHARED if (item.target or "").startswith(each)), None)
        shared = None if prefix is None else (item.target or "").removeprefix(prefix)
        yield DeclaredInput(item.name, item.default, item.required, shared)
