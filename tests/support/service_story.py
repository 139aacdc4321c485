"""A story of the service: every operation once, in order; `service_story.json` has its answers."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Mapping
from typing import Any, TypedDict

import orjson

from tests.support.processes import until
from tests.support.service import Service

DEFINITION: Mapping[str, Any] = {
    "blocks": {
        "extract_invoice": {
            "type": "code",
            "code": (
                "def main(data):\n    return {'total': 1234.56, 'vendor': {'name': 'Acme Inc'}}\n"
            ),
            "inputs": {"invoice": {"from": "workflow.invoice", "type": "file"}},
            "outputs": {
                "type": "object",
                "properties": {
                    "total": {"type": "number"},
                    "vendor": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
            },
        }
    },
    "workflow": {
        "entry": "extract_invoice",
        "transitions": [{"from": "extract_invoice", "to": None}],
    },
}
TOTAL: Mapping[str, Any] = {
    "target": {"output_handle_id": "output-json-0", "path": "total"},
    "condition": {"kind": "equals", "expected": 1234.56},
}
VENDOR: Mapping[str, Any] = {
    "target": {"output_handle_id": "output-json-0", "path": "vendor.name"},
    "condition": {"kind": "contains", "expected": "Acme"},
    "label": "vendor includes Acme",
}
_ID = re.compile(r"\b(wf|draft|wfrun|step|file|wfnodeeval|assert|wfevalrun|wfresult)_\w{22}\b")
_TIME = re.compile(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"')
_DURATION = re.compile(r'"duration_ms":\d+')
_LETTERS = string.ascii_letters + string.digits


class OperationExample(TypedDict):
    """A request and its answer; `body` and `answer` are null where there is none."""

    parameters: dict[str, Any]
    body: Any
    status: int
    answer: Any


class Story:
    """Sends the requests to a service and keeps what was asked and answered."""

    def __init__(self, service: Service, document: Mapping[str, Any]) -> None:
        self._service = service
        self._operations = {
            operation["operationId"]: (method.upper(), path)
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        }
        self.examples: dict[str, OperationExample] = {}

    @property
    def untold(self) -> set[str]:
        """The operations that no request was sent to."""
        return self._operations.keys() - self.examples.keys()

    def tell(
        self, operation: str, body: Any = None, *, files: Any = None, **parameters: Any
    ) -> Any:
        """Send one request and return the JSON of its answer, which has to be a success."""
        method, path = self._operations[operation]
        names = [name for name in parameters if f"{{{name}}}" in path]
        headers = {name: value for name, value in parameters.items() if "-" in name}
        query = {k: v for k, v in parameters.items() if k not in names and k not in headers}
        answer = self._service.client.request(
            method, path.format(**parameters), json=body, files=files, params=query, headers=headers
        )
        assert 200 <= answer.status_code < 300, f"{operation}: {answer.text}"
        is_json = answer.headers.get("content-type") == "application/json"
        content = answer.json() if is_json and answer.content else None
        self.examples[operation] = OperationExample(
            parameters=parameters, body=body, status=answer.status_code, answer=content
        )
        return content

    def tell_until_ended(self, operation: str, run_id: str) -> Any:
        """Read a run until it has ended."""

        def completed() -> Any:
            run = self.tell(operation, run_id=run_id)
            return run if run["lifecycle"]["status"] == "completed" else None

        return until(completed)


def tell_all(story: Story, paused: Story) -> None:
    """Tell the whole story; `paused` is of a service that executes nothing."""
    tell = story.tell
    for operation in ("operations_healthz", "operations_readyz", "operations_metrics"):
        tell(operation)
    pdf = {"file": ("invoice.pdf", b"%PDF-1.7", "application/pdf")}
    file = tell("files_upload", files=pdf)
    tell("files_get", file_id=file["id"])
    tell("files_content", file_id=file["id"])
    document = {key: file[key] for key in ("id", "filename", "mime_type")}
    registration = {"name": "invoices", "definition": DEFINITION}
    workflow = tell("workflows_register", registration)["id"]
    tell("workflows_list_all", limit=20)
    tell("workflows_get", workflow_id=workflow)
    started = tell("workflow_runs_start", {"inputs": {"invoice": document}}, workflow_id=workflow)
    story.tell_until_ended("workflow_runs_get", started["id"])
    step = tell("workflow_runs_list_steps", run_id=started["id"], limit=20)["data"][0]["id"]
    source = {"type": "run_step", "run_id": started["id"], "step_id": step}
    target = {"type": "block", "block_id": "extract_invoice"}
    saved = {"workflow_id": workflow, "target": target, "source": source, "assertion": TOTAL}
    one = tell("evals_create", {**saved, "name": "invoice total"})["id"]
    scope = {"type": "single", "eval_id": one}
    asked = {"workflow_id": workflow, "scope": scope}
    run = tell("eval_runs_create_run", asked, **{"idempotency-key": "nightly-2026-05-18"})["id"]
    story.tell_until_ended("eval_runs_get_run", run)
    tell("eval_runs_list_runs", workflow_id=workflow, limit=20)
    result = tell("eval_runs_list_results", run_id=run, limit=20)["data"][0]["id"]
    tell("eval_runs_get_result", result_id=result)
    tell("evals_list_all", workflow_id=workflow, limit=20)
    tell("evals_get", eval_id=one)
    tell("evals_update", {"assertion": VENDOR}, eval_id=one)
    tell("workflows_update_draft", {"definition": DEFINITION}, workflow_id=workflow)
    tell("workflows_publish", workflow_id=workflow)
    other = paused.tell("workflows_register", registration)["id"]
    manual = {"type": "manual", "handle_inputs": {}}
    paused.tell("evals_create", {**saved, "workflow_id": other, "source": manual})
    waiting = paused.tell("eval_runs_create_run", {"workflow_id": other})["id"]
    paused.tell("eval_runs_cancel_run", run_id=waiting)
    story.examples["eval_runs_cancel_run"] = paused.examples["eval_runs_cancel_run"]
    tell("evals_delete", eval_id=one)
    tell("workflows_delete", workflow_id=workflow)


def same_each_time(examples: Mapping[str, OperationExample]) -> Any:
    """Return examples with ids, times and durations that do not change."""
    text = orjson.dumps(examples).decode()
    numbers: dict[str, int] = {}

    def named(match: re.Match[str]) -> str:
        number = numbers.setdefault(match[0], sum(key.startswith(match[1]) for key in numbers))
        digest = hashlib.sha256(f"{match[1]} {number}".encode()).digest()
        return f"{match[1]}_" + "".join(_LETTERS[byte % 62] for byte in digest[:22])

    text = _ID.sub(named, text)
    text = _TIME.sub('"2026-05-18T10:00:00Z"', text)
    return orjson.loads(_DURATION.sub('"duration_ms":42', text))
