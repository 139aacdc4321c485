"""A client of the service: `client.evals.create(…)`, `client.runs.wait(…)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self, TypeVar

import httpx
from pydantic import BaseModel

from evalcore.errors import EvalError, UsageError
from evalcore.service.models import (
    FINAL,
    CreateEval,
    CreateEvalRun,
    CreateWorkflow,
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

DEFAULT_URL: Final = "http://127.0.0.1:8321"
_WORKFLOWS: Final = "/v1/workflows"
_EVALS: Final = f"{_WORKFLOWS}/evals"
_TIMEOUT_S: Final = 60.0
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0
_PAGE: Final = 100
Model = TypeVar("Model", bound=BaseModel)
Run = TypeVar("Run", WorkflowRun, WorkflowEvalRun)


class ServiceRefusedError(EvalError):
    """The service's answer is not 2xx: its status, and what it says is wrong."""

    def __init__(self, status: int, detail: Any) -> None:
        text = detail
        if isinstance(detail, list):
            text = "; ".join(
                f"{'.'.join(map(str, mistake.get('loc', ())))}: {mistake.get('msg', '')}"
                for mistake in detail
                if isinstance(mistake, dict)
            )
        super().__init__(f"the service answers {status}: {text}")
        self.status = status
        self.detail = detail


class Client:
    """A client that blocks. Close it, or use it in a `with` statement.

    Methods raise `ServiceRefusedError` for an answer that is not 2xx, `UsageError` without one.
    """

    def __init__(self, url: str = DEFAULT_URL, token: str | None = None) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S)
        self.workflows = Workflows(self)
        self.workflow_runs = WorkflowRuns(self)
        self.evals = Evals(self)
        self.runs = EvalRuns(self)
        self.results = Results(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: BaseModel | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return the content of the answer to a request. Fields that are not set are left out."""
        sent = dict(headers or {})
        content = None
        if body is not None:
            sent["Content-Type"] = "application/json"
            content = body.model_dump_json(exclude_unset=True, by_alias=True).encode()
        params = {key: value for key, value in (query or {}).items() if value is not None}
        try:
            answer = self._http.request(method, path, params=params, content=content, headers=sent)
        except httpx.TransportError as error:
            raise UsageError(
                f"the service at {self._http.base_url} does not answer "
                f"({str(error) or type(error).__name__}); start it with `evalcore serve`, or name "
                "another address in EVALCORE_SERVICE"
            ) from error
        if answer.is_success:
            return answer.content
        try:
            detail = answer.json()["detail"]
        except (ValueError, KeyError, TypeError):
            detail = answer.text[:500]
        raise ServiceRefusedError(answer.status_code, detail)

    def one(self, kind: type[Model], method: str, path: str, **request: Any) -> Model:
        """Return what a request is answered with; keywords as for `send`."""
        return kind.model_validate_json(self.send(method, path, **request))

    def every(self, path: str, kind: type[Model], query: Mapping[str, Any]) -> Iterator[Model]:
        """Yield every row of a list, the newest first."""
        page_of: Any = Page[kind]  # type: ignore[valid-type]
        after: str | None = None
        while True:
            asked = {"limit": _PAGE, "after": after, **query}
            page = page_of.model_validate_json(self.send("GET", path, query=asked))
            yield from page.data
            after = page.list_metadata.after
            if after is None:
                return


class _Resource:
    def __init__(self, client: Client) -> None:
        self._client = client


class Workflows(_Resource):
    """Registered workflows. Keywords are the fields of the requests."""

    def create(self, **fields: Any) -> RegisteredWorkflow:
        """Register a workflow."""
        body = CreateWorkflow.model_validate(fields)
        return self._client.one(RegisteredWorkflow, "POST", _WORKFLOWS, body=body)

    def list(self) -> Iterator[RegisteredWorkflow]:
        """Yield the workflows."""
        return self._client.every(_WORKFLOWS, RegisteredWorkflow, {})

    def get(self, workflow_id: str, version_id: str | None = None) -> RegisteredWorkflow:
        """Return a workflow at its draft or another version."""
        path, query = f"{_WORKFLOWS}/{workflow_id}", {"version_id": version_id}
        return self._client.one(RegisteredWorkflow, "GET", path, query=query)

    def update_draft(self, workflow_id: str, **fields: Any) -> RegisteredWorkflow:
        """Replace the draft of a workflow."""
        path, body = f"{_WORKFLOWS}/{workflow_id}/draft", UpdateDraft.model_validate(fields)
        return self._client.one(RegisteredWorkflow, "PUT", path, body=body)

    def publish(self, workflow_id: str) -> RegisteredWorkflow:
        """Publish the draft."""
        path = f"{_WORKFLOWS}/{workflow_id}/publish"
        return self._client.one(RegisteredWorkflow, "POST", path)

    def run(self, workflow_id: str, **fields: Any) -> WorkflowRun:
        """Run a workflow."""
        path, body = f"{_WORKFLOWS}/{workflow_id}/runs", StartWorkflowRun.model_validate(fields)
        return self._client.one(WorkflowRun, "POST", path, body=body)


class WorkflowRuns(_Resource):
    """Runs of workflows."""

    def get(self, run_id: str) -> WorkflowRun:
        """Return a run of a workflow."""
        return self._client.one(WorkflowRun, "GET", f"{_WORKFLOWS}/runs/{run_id}")

    def steps(self, run_id: str) -> Iterator[WorkflowStep]:
        """Yield the steps of a run."""
        return self._client.every(f"{_WORKFLOWS}/runs/{run_id}/steps", WorkflowStep, {})

    def wait(self, run_id: str) -> WorkflowRun:
        """Return a run once it has ended."""
        return _ended(lambda: self.get(run_id))


class Evals(_Resource):
    """Saved evals. Keywords are the fields of the requests."""

    def create(self, **fields: Any) -> WorkflowEval:
        """Save an eval."""
        body = CreateEval.model_validate(fields)
        return self._client.one(WorkflowEval, "POST", _EVALS, body=body)

    def list(self, workflow_id: str, **query: Any) -> Iterator[WorkflowEval]:
        """Yield the evals of a workflow."""
        return self._client.every(_EVALS, WorkflowEval, {"workflow_id": workflow_id, **query})

    def get(self, eval_id: str) -> WorkflowEval:
        """Return an eval."""
        return self._client.one(WorkflowEval, "GET", f"{_EVALS}/{eval_id}")

    def update(self, eval_id: str, **fields: Any) -> WorkflowEval:
        """Change an eval."""
        body = UpdateEval.model_validate(fields)
        return self._client.one(WorkflowEval, "PATCH", f"{_EVALS}/{eval_id}", body=body)

    def delete(self, eval_id: str) -> None:
        """Delete an eval; its results stay."""
        self._client.send("DELETE", f"{_EVALS}/{eval_id}")


class EvalRuns(_Resource):
    """Runs of saved evals."""

    def create(self, idempotency_key: str | None = None, **fields: Any) -> WorkflowEvalRun:
        """Run evals; the same key gives the same run."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = CreateEvalRun.model_validate(fields)
        path = f"{_EVALS}/runs"
        return self._client.one(WorkflowEvalRun, "POST", path, body=body, headers=headers)

    def list(self, **query: Any) -> Iterator[WorkflowEvalRun]:
        """Yield runs."""
        return self._client.every(f"{_EVALS}/runs", WorkflowEvalRun, query)

    def get(self, run_id: str) -> WorkflowEvalRun:
        """Return a run."""
        return self._client.one(WorkflowEvalRun, "GET", f"{_EVALS}/runs/{run_id}")

    def cancel(self, run_id: str) -> WorkflowEvalRun:
        """Cancel a run."""
        return self._client.one(WorkflowEvalRun, "POST", f"{_EVALS}/runs/{run_id}/cancel")

    def wait(self, run_id: str) -> WorkflowEvalRun:
        """Return a run once it has ended."""
        return _ended(lambda: self.get(run_id))


class Results(_Resource):
    """Results of runs of saved evals."""

    def list(self, **query: Any) -> Iterator[WorkflowEvalResult]:
        """Yield results: by `run_id` or by `eval_id`."""
        return self._client.every(f"{_EVALS}/results", WorkflowEvalResult, query)

    def get(self, result_id: str) -> WorkflowEvalResult:
        """Return a result."""
        return self._client.one(WorkflowEvalResult, "GET", f"{_EVALS}/results/{result_id}")


def _ended(read: Callable[[], Run]) -> Run:
    """Return what `read` returns once its lifecycle is final."""
    wait_s = _FIRST_WAIT_S
    while (run := read()).lifecycle.status not in FINAL:
        time.sleep(wait_s)
        wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)
    return run
