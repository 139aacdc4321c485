"""The shapes of requests and responses, field by field as `docs/reference/service.md` has them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from evalcore.checks.conditions import AnyCondition, AssertionTarget, EvalAssertion, Handle

Item = TypeVar("Item")
Identifier = Annotated[str, Field(min_length=1, max_length=200)]


def _shown(example: Mapping[str, Any]) -> ConfigDict:
    """Return what gives a shape an example in the documents of the API."""
    return ConfigDict(json_schema_extra={"examples": [dict(example)]})


class RequestBody(BaseModel):
    """A request: unknown keys and values of another type are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ResponseBody(BaseModel):
    """A response."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LifecycleStatus(StrEnum):
    """How far a run or a result is; the last three are final."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"


FINAL = frozenset({LifecycleStatus.COMPLETED, LifecycleStatus.ERROR, LifecycleStatus.CANCELLED})


class ExecutionError(ResponseBody):
    """Why an execution gave no output."""

    code: str
    message: str


class Lifecycle(ResponseBody):
    """The status of a run, a step or a result; `error` only stands in a failed one."""

    status: LifecycleStatus
    error: ExecutionError | None = Field(default=None, exclude_if=lambda error: error is None)


class Timing(ResponseBody):
    """When something was created, started and ended (UTC), and how long it ran."""

    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration_ms: int | None = None


class ListMetadata(ResponseBody):
    """The cursors of a page: ids to pass as `before` and `after`; null where nothing follows."""

    before: str | None = None
    after: str | None = None


class Page(ResponseBody, Generic[Item]):
    """A page of a list, newest first."""

    data: list[Item]
    list_metadata: ListMetadata


class ErrorBody(ResponseBody):
    """An error: what is wrong, and what would work."""

    detail: str


class Mistake(ResponseBody):
    """One mistake of a request: where it stands, and what is wrong there."""

    loc: list[str | int]
    msg: str
    type: str


class MistakesBody(ResponseBody):
    """All mistakes of a request."""

    detail: list[Mistake]


TriggerType = Literal["api", "mcp", "schedule"]
Verdict = Literal["passed", "failed", "blocked"]
HandleInputs = Annotated[dict[Identifier, Handle], Field(max_length=200)]


class BlockTarget(RequestBody):
    """The eval replays one block of the workflow's current draft."""

    type: Literal["block"]
    block_id: Identifier


EvalTarget = Annotated[BlockTarget, Field()]


class ManualSource(RequestBody):
    """Inputs as the caller gives them, by handle."""

    type: Literal["manual"]
    handle_inputs: HandleInputs


class RunStepSource(RequestBody):
    """The inputs that the block received in an earlier workflow run.

    They are copied when the eval is saved. `step_id` names the round of a block inside a loop.
    """

    type: Literal["run_step"]
    run_id: Identifier
    step_id: Identifier | None = None


EvalSource = Annotated[ManualSource | RunStepSource, Field(discriminator="type")]


class AssertionBody(RequestBody):
    """What is asserted about one output handle; the service gives it an id."""

    target: AssertionTarget
    condition: AnyCondition
    label: Annotated[str, Field(max_length=500)] | None = None
    id: Identifier | None = None


_ASSERTION: Final = {
    "target": {"output_handle_id": "output-json-0", "path": "total"},
    "condition": {"kind": "equals", "expected": 42},
}


class CreateEval(RequestBody):
    """`POST /v1/workflows/evals`."""

    model_config = _shown(
        {
            "workflow_id": "wf_abc123xyz",
            "name": "invoice total",
            "target": {"type": "block", "block_id": "extract"},
            "source": {
                "type": "manual",
                "handle_inputs": {"input-json-0": {"type": "json", "data": {"amount": 21}}},
            },
            "assertion": _ASSERTION,
        }
    )

    workflow_id: Identifier
    target: EvalTarget
    source: EvalSource
    assertion: AssertionBody
    name: Annotated[str, Field(max_length=500)] | None = None


class UpdateEval(RequestBody):
    """`PATCH /v1/workflows/evals/{eval_id}`: omitted fields stay as they are."""

    model_config = _shown({"assertion": _ASSERTION})

    target: EvalTarget | None = None
    source: EvalSource | None = None
    assertion: AssertionBody | None = None
    name: Annotated[str, Field(max_length=500)] | None = None


class Freshness(ResponseBody):
    """Whether the latest run still says something about the current draft."""

    status: Literal["fresh", "stale", "unknown"]
    reasons: list[
        Literal[
            "validity_changed",
            "inputs_changed",
            "engine_changed",
            "metrics_engine_changed",
            "no_baseline",
        ]
    ]


class Drift(ResponseBody):
    """The worst of schema drift, assertion drift and their reasons."""

    status: Literal["none", "drifted", "broken", "unknown"]


class RunSummary(ResponseBody):
    """The latest result of an eval, or the latest passing or failing one."""

    run_record_id: str
    status: LifecycleStatus
    outcome: Verdict | None
    started_at: datetime | None
    completed_at: datetime | None
    assertions_passed: int
    assertions_failed: int
    blocked_assertions: int


class WorkflowEval(ResponseBody):
    """A saved eval; drift and freshness are computed when it is read."""

    id: str
    workflow_id: str
    target: EvalTarget
    source: EvalSource
    name: str | None
    assertion: EvalAssertion
    schema_drift: Literal["none", "partial", "drifted", "unknown"]
    assertion_drift_status: Literal["valid", "drifted", "broken"]
    freshness: Freshness
    drift: Drift
    latest_run_summary: RunSummary | None
    latest_passing_run_summary: RunSummary | None
    latest_failing_run_summary: RunSummary | None


class FailureDetails(ResponseBody):
    """The longest part of the path that resolves, and the value there."""

    partial_path: str | None = None
    partial_value: Any = None


class AssertionFailure(ResponseBody):
    """Why an assertion failed or could not be evaluated."""

    code: str
    message: str
    details: FailureDetails


class AssertionResultBody(ResponseBody):
    """What an assertion came to."""

    assertion_id: str
    condition_kind: str
    outcome: Verdict
    actual_value: Any
    expected_value: Any
    failure: AssertionFailure | None


class WorkflowScope(RequestBody):
    """Every saved eval of the workflow."""

    type: Literal["workflow"]


class BlockScope(RequestBody):
    """Every saved eval of one block."""

    type: Literal["block"]
    block_id: Identifier


class SingleScope(RequestBody):
    """One saved eval."""

    type: Literal["single"]
    eval_id: Identifier


Scope = Annotated[WorkflowScope | BlockScope | SingleScope, Field(discriminator="type")]


class CreateEvalRun(RequestBody):
    """`POST /v1/workflows/evals/runs`; without a scope every saved eval of the workflow."""

    model_config = _shown(
        {"workflow_id": "wf_abc123xyz", "scope": {"type": "block", "block_id": "extract"}}
    )

    workflow_id: Identifier
    scope: Scope | None = None


class Trigger(ResponseBody):
    """What started a run."""

    type: TriggerType


class LifecycleCounts(ResponseBody):
    """How many children have each status; they add up to `total_evals`."""

    pending: int = 0
    queued: int = 0
    running: int = 0
    completed: int = 0
    error: int = 0
    cancelled: int = 0


class OutcomeCounts(ResponseBody):
    """How the completed children came out."""

    passed: int = 0
    failed: int = 0
    blocked: int = 0


class RunCounts(ResponseBody):
    """The children of a run by status and by outcome."""

    lifecycle_counts: LifecycleCounts
    outcome: OutcomeCounts


class WorkflowEvalRun(ResponseBody):
    """One batch of evals: the parent of its results."""

    id: str
    workflow_id: str
    workflow_version_id: str
    trigger: Trigger
    lifecycle: Lifecycle
    timing: Timing
    target: EvalTarget | None
    eval_id: str | None
    total_evals: int
    counts: RunCounts


class VerdictSummary(ResponseBody):
    """A result's assertions, counted."""

    passed: bool
    assertions_passed: int
    assertions_failed: int
    blocked_assertions: int
    failed_assertion_ids: list[str]


class WorkflowEvalResult(ResponseBody):
    """The immutable record of one eval's execution."""

    id: str
    workflow_eval_run_id: str
    eval_id: str
    workflow_id: str
    block_id: str
    block_type: str | None
    lifecycle: Lifecycle
    timing: Timing
    handle_inputs: dict[str, Handle]
    handle_outputs: dict[str, Handle] | None
    assertion_result: AssertionResultBody | None
    verdict: Verdict | None
    verdict_summary: VerdictSummary | None


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


_CODE: Final = "def main(data):\n    return {'total': data['invoice']['amount'] * 2}\n"
_DEFINITION: Final = {
    "blocks": {
        "extract": {"type": "code", "code": _CODE, "inputs": {"invoice": "workflow.invoice"}}
    },
    "workflow": {"entry": "extract", "transitions": [{"from": "extract", "to": None}]},
}


class CreateWorkflow(RequestBody):
    """`POST /v1/workflows`: a workflow file as a mapping, or its YAML text."""

    model_config = _shown({"name": "invoices", "definition": _DEFINITION})

    name: Annotated[str, Field(min_length=1, max_length=200)]
    definition: Definition


class UpdateDraft(RequestBody):
    """`PUT /v1/workflows/{id}/draft`."""

    model_config = _shown({"definition": _DEFINITION})

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
    blocks: list[WorkflowBlock]


class StartWorkflowRun(RequestBody):
    """`POST /v1/workflows/{id}/runs`."""

    model_config = _shown({"inputs": {"invoice": {"amount": 21}}})

    inputs: dict[str, Any] = Field(default_factory=dict)


class WorkflowRun(ResponseBody):
    """One execution of a workflow."""

    id: str
    workflow_id: str
    workflow_version_id: str
    lifecycle: Lifecycle
    timing: Timing
    inputs: dict[str, Any]
    output: Any = None


class WorkflowStep(ResponseBody):
    """One time that a block ran; `round` counts from 1 inside a loop."""

    id: str
    block_id: str
    round: int | None
    lifecycle: Lifecycle
    timing: Timing
    handle_inputs: dict[str, Handle] | None
    handle_outputs: dict[str, Handle] | None


class StoredFile(ResponseBody):
    """A file that the service holds."""

    id: str
    filename: str
    mime_type: str
    size: int
    sha256: str
