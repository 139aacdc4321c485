"""Runs of saved evals, and their results."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from evalcore.checks.conditions import Handle
from evalcore.service.wire.base import (
    Identifier,
    Lifecycle,
    OptionalDamage,
    RequestBody,
    ResponseBody,
    Timing,
)
from evalcore.service.wire.evals import AssertionResultBody, EvalTarget, Verdict


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

    workflow_id: Identifier
    scope: Scope | None = None


class Trigger(ResponseBody):
    """What started a run."""

    type: Literal["api", "mcp", "schedule"]


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
    handle_inputs: dict[str, Handle] | None
    handle_outputs: dict[str, Handle] | None
    assertion_result: AssertionResultBody | None
    verdict: Verdict | None
    verdict_summary: VerdictSummary | None
    damage: OptionalDamage = None
