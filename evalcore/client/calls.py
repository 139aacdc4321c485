"""The calls of the API: method, path, query, body, and the shape of the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, TypeAdapter

from evalcore.service.models import (
    CreateEval,
    CreateEvalRun,
    CreateWorkflow,
    ExportedWorkflow,
    Page,
    RegisteredWorkflow,
    StartWorkflowRun,
    UpdateDraft,
    UpdateEval,
    WorkflowEval,
    WorkflowEvalResult,
    WorkflowEvalRun,
    WorkflowRun,
    WorkflowStep,
)

Answer = TypeVar("Answer")
EVALS = "/v1/workflows/evals"


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request, and the type that its answer is read as (None: no content)."""

    method: str
    path: str
    answer: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    body: BaseModel | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def content(self) -> bytes | None:
        """Return the body as JSON; fields that are not set are left out."""
        if not isinstance(self.body, BaseModel):
            return self.body
        return self.body.model_dump_json(exclude_unset=True, by_alias=True).encode()

    def parameters(self) -> dict[str, Any]:
        """Return the query without what is None."""
        return {key: value for key, value in self.query.items() if value is not None}

    def read(self, content: bytes) -> Answer:
        """Return the answer of a successful request."""
        if self.answer is None:
            return None  # type: ignore[return-value]  # of a call without an answer
        adapter: TypeAdapter[Answer] = TypeAdapter(self.answer)
        return adapter.validate_json(content)


def create_workflow(body: CreateWorkflow) -> Call[RegisteredWorkflow]:
    """Register a workflow."""
    return Call("POST", "/v1/workflows", RegisteredWorkflow, body=body)


def get_workflow(workflow_id: str, version_id: str | None) -> Call[RegisteredWorkflow]:
    """Return a workflow at its draft or another version."""
    query = {"version_id": version_id}
    return Call("GET", f"/v1/workflows/{workflow_id}", RegisteredWorkflow, query)


def list_workflows(query: Mapping[str, Any]) -> Call[Page[RegisteredWorkflow]]:
    """Return a page of workflows."""
    return Call("GET", "/v1/workflows", Page[RegisteredWorkflow], query)


def export_workflow(workflow_id: str) -> Call[ExportedWorkflow]:
    """Return a workflow's draft and all of its evals."""
    return Call("GET", f"/v1/workflows/{workflow_id}/export", ExportedWorkflow)


def update_draft(workflow_id: str, body: UpdateDraft) -> Call[RegisteredWorkflow]:
    """Replace the draft of a workflow."""
    return Call("PUT", f"/v1/workflows/{workflow_id}/draft", RegisteredWorkflow, body=body)


def publish(workflow_id: str) -> Call[RegisteredWorkflow]:
    """Publish the draft."""
    return Call("POST", f"/v1/workflows/{workflow_id}/publish", RegisteredWorkflow)


def start_workflow_run(workflow_id: str, body: StartWorkflowRun) -> Call[WorkflowRun]:
    """Run a workflow."""
    return Call("POST", f"/v1/workflows/{workflow_id}/runs", WorkflowRun, body=body)


def get_workflow_run(run_id: str) -> Call[WorkflowRun]:
    """Return a workflow run."""
    return Call("GET", f"/v1/workflows/runs/{run_id}", WorkflowRun)


def list_steps(run_id: str, query: Mapping[str, Any]) -> Call[Page[WorkflowStep]]:
    """Return a page of the steps of a workflow run."""
    return Call("GET", f"/v1/workflows/runs/{run_id}/steps", Page[WorkflowStep], query)


def create_eval(body: CreateEval) -> Call[WorkflowEval]:
    """Save an eval."""
    return Call("POST", EVALS, WorkflowEval, body=body)


def list_evals(query: Mapping[str, Any]) -> Call[Page[WorkflowEval]]:
    """Return a page of the evals of a workflow."""
    return Call("GET", EVALS, Page[WorkflowEval], query)


def get_eval(eval_id: str) -> Call[WorkflowEval]:
    """Return an eval."""
    return Call("GET", f"{EVALS}/{eval_id}", WorkflowEval)


def update_eval(eval_id: str, body: UpdateEval) -> Call[WorkflowEval]:
    """Change an eval."""
    return Call("PATCH", f"{EVALS}/{eval_id}", WorkflowEval, body=body)


def delete_eval(eval_id: str) -> Call[None]:
    """Delete an eval."""
    return Call("DELETE", f"{EVALS}/{eval_id}")


def create_run(body: CreateEvalRun, idempotency_key: str | None) -> Call[WorkflowEvalRun]:
    """Run evals."""
    headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
    return Call("POST", f"{EVALS}/runs", WorkflowEvalRun, body=body, headers=headers)


def list_runs(query: Mapping[str, Any]) -> Call[Page[WorkflowEvalRun]]:
    """Return a page of runs."""
    return Call("GET", f"{EVALS}/runs", Page[WorkflowEvalRun], query)


def get_run(run_id: str) -> Call[WorkflowEvalRun]:
    """Return a run."""
    return Call("GET", f"{EVALS}/runs/{run_id}", WorkflowEvalRun)


def cancel_run(run_id: str) -> Call[WorkflowEvalRun]:
    """Cancel a run."""
    return Call("POST", f"{EVALS}/runs/{run_id}/cancel", WorkflowEvalRun)


def list_results(query: Mapping[str, Any]) -> Call[Page[WorkflowEvalResult]]:
    """Return a page of results."""
    return Call("GET", f"{EVALS}/results", Page[WorkflowEvalResult], query)


def get_result(result_id: str) -> Call[WorkflowEvalResult]:
    """Return a result."""
    return Call("GET", f"{EVALS}/results/{result_id}", WorkflowEvalResult)
