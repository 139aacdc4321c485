"""Workflows, their drafts and versions, their runs with recorded steps, and files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema

from evalcore.checks.conditions import Handle
from evalcore.formats.saved_evals import FileEval
from evalcore.service.wire.base import Lifecycle, OptionalDamage, RequestBody, ResponseBody, Timing

DefinitionMapping = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "blocks": {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {"type": "object", "required": ["type"]},
                }
            },
            "required": ["blocks"],
        }
    ),
]
Definition = DefinitionMapping | Annotated[str, Field(min_length=1)]


class CreateWorkflow(RequestBody):
    """`POST /v1/workflows`: a workflow file as a mapping, or its YAML text."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    definition: Definition


class UpdateDraft(RequestBody):
    """`PUT /v1/workflows/{id}/draft`."""

    definition: Definition


class BlockHandle(ResponseBody):
    """One input or output of a block; `schema` is null where nothing declares it."""

    handle_id: str
    name: str
    type: Literal["json", "file"]
    schema_: dict[str, Any] | None = Field(alias="schema")


class WorkflowBlock(ResponseBody):
    """A block of a workflow and its handles."""

    id: str
    type: str
    inputs: list[BlockHandle]
    outputs: list[BlockHandle]


class RegisteredWorkflow(ResponseBody):
    """A registered workflow, at its draft or at a published version."""

    id: str
    name: str
    version_id: str
    blocks: list[WorkflowBlock] | None
    damage: OptionalDamage = None


class ExportedWorkflow(ResponseBody):
    """A workflow's draft and its saved evals, oldest first, with their frozen inputs."""

    name: str
    workflow: dict[str, Any]
    evals: list[FileEval]


class StartWorkflowRun(RequestBody):
    """`POST /v1/workflows/{id}/runs`."""

    inputs: dict[str, Any] = Field(default_factory=dict)


class WorkflowRun(ResponseBody):
    """One execution of a workflow."""

    id: str
    workflow_id: str
    workflow_version_id: str
    lifecycle: Lifecycle
    timing: Timing
    inputs: dict[str, Any] | None
    output: Any = None
    damage: OptionalDamage = None


class WorkflowStep(ResponseBody):
    """One time that a block ran; `round` counts from 1 inside a loop."""

    id: str
    block_id: str
    round: int | None
    lifecycle: Lifecycle
    timing: Timing
    handle_inputs: dict[str, Handle] | None
    handle_outputs: dict[str, Handle] | None
    damage: OptionalDamage = None


class StoredFile(ResponseBody):
    """A file that the service holds."""

    id: str
    filename: str
    mime_type: str
    size: int
    sha256: str
