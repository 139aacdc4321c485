"""Sends malformed requests to a service, and checks its answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx

from tests.support.malformed_requests import MalformedRequest, Operation, malformed_requests
from tests.support.service import WORKFLOW, Service, eval_body

EVALS, RUNS = "/v1/workflows/evals", "/v1/workflows/evals/runs"


def requests_to_break(served: Service, seed: int) -> Iterator[MalformedRequest]:
    """Return malformed requests without end, about a workflow and an eval of their own."""
    workflow = served.register()
    saved = served.save(workflow, {"kind": "exists"})
    body: dict[str, Any] = eval_body(workflow, {"kind": "equals", "expected": 42})
    assertion = {"target": {"output_handle_id": "o"}, "condition": {"kind": "exists"}}
    nested = {"kind": "all_items_match", "condition": {"kind": "between", "lower": 1, "upper": 2}}
    operations = [
        Operation("POST", "/v1/workflows", {"name": "x", "definition": WORKFLOW}),
        Operation("PUT", f"/v1/workflows/{workflow}/draft", {"definition": WORKFLOW}),
        Operation("POST", f"/v1/workflows/{workflow}/runs", {"inputs": {"amount": 1, "name": "x"}}),
        Operation("POST", EVALS, {**body, "name": "x"}),
        Operation("POST", EVALS, {**body, "assertion": {**assertion, "condition": nested}}),
        Operation("PATCH", f"{EVALS}/{saved}", {"assertion": assertion}),
        Operation("POST", RUNS, {"workflow_id": workflow, "scope": {"type": "workflow"}}),
        Operation(
            "POST", RUNS, {"workflow_id": workflow, "scope": {"type": "single", "eval_id": saved}}
        ),
    ]
    lists = [RUNS, "/v1/workflows", f"{EVALS}?workflow_id={workflow}"[: len(EVALS)]]
    return malformed_requests(operations, lists, [RUNS, "/v1/workflows/evals/results"], seed=seed)


def sent(served: Service, request: MalformedRequest) -> httpx.Response:
    return served.client.request(
        request.method,
        request.path + ("?" + request.query if request.query else ""),
        content=request.content,
        headers={**request.headers},
    )


def assert_refused(answer: httpx.Response, request: MalformedRequest) -> None:
    """Every refusal has a reason; mistakes of a body or a query have their places, too."""
    shown = f"{request}\n{answer.status_code} {answer.text[:2000]}"
    assert answer.status_code < 500, shown
    if request.place is not None:
        assert answer.status_code >= 400, shown
    if answer.status_code < 400 or answer.headers["content-type"] != "application/json":
        assert answer.status_code in {200, 201, 202, 400, 431}, shown
        return
    detail = answer.json()["detail"]
    assert detail, shown
    if answer.status_code == 422:
        assert all(mistake["loc"] and mistake["msg"] for mistake in detail), shown
    if request.place == "token":
        assert answer.status_code == 401, shown
