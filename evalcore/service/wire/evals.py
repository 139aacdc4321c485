"""Saved evals: a block of a workflow, its frozen inputs, and one assertion about its output."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from evalcore.checks.conditions import AnyCondition, AssertionTarget, EvalAssertion, Handle
from evalcore.service.wire.base import (
    Identifier,
    LifecycleStatus,
    OptionalDamage,
    RequestBody,
    ResponseBody,
)

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


class CreateEval(RequestBody):
    """`POST /v1/workflows/evals`."""

    workflow_id: Identifier
    target: EvalTarget
    source: EvalSource
    assertion: AssertionBody
    name: Annotated[str, Field(max_length=500)] | None = None


class UpdateEval(RequestBody):
    """`PATCH /v1/workflows/evals/{eval_id}`: omitted fields stay as they are."""

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
    source: EvalSource | None
    name: str | None
    assertion: EvalAssertion
    schema_drift: Literal["none", "partial", "drifted", "unknown"]
    assertion_drift_status: Literal["valid", "drifted", "broken"]
    freshness: Freshness
    drift: Drift
    latest_run_summary: RunSummary | None
    latest_passing_run_summary: RunSummary | None
    latest_failing_run_summary: RunSummary | None
    damage: OptionalDamage = None


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
