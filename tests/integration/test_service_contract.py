"""The contract of the REST service: the shapes of its source document, field by field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.support.service import WORKFLOW, Service, eval_body

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.xdist_group("service")]
EVALS, RUNS, RESULTS = (
    "/v1/workflows/evals",
    "/v1/workflows/evals/runs",
    "/v1/workflows/evals/results",
)
DOUBLED = {"kind": "equals", "expected": 42}
LIFECYCLE_COUNTS = {"pending", "queued", "running", "completed", "error", "cancelled"}
TIMING = {"created_at", "started_at", "completed_at", "duration_ms"}
RUN_KEYS = {
    "id", "workflow_id", "workflow_version_id", "trigger", "lifecycle", "timing", "target",
    "eval_id", "total_evals", "counts",
}  # fmt: skip


@pytest.fixture
def served(open_service: Service) -> Service:
    return open_service


@pytest.fixture(scope="module")
def workflow(open_service: Service) -> str:
    return open_service.register()


def refused(served: Service, path: str, body: Any, method: str = "POST") -> tuple[int, Any]:
    answer = served.client.request(method, path, json=body)
    return answer.status_code, answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (RUNS, {"workflow_id": "W", "extra": 1}),
        (RUNS, {"workflow_id": "W", "scope": {"type": "workflow", "block_id": "extract"}}),
        (RUNS, {"workflow_id": "W", "scope": {"type": "block", "block_id": "b", "eval_id": "e"}}),
        (RUNS, {"workflow_id": "W", "scope": {"type": "single"}}),
        (RUNS, {"workflow_id": "W", "scope": {"type": "all"}}),
        (RUNS, {"workflow_id": "W", "scope": {}}),
        (RUNS, {"scope": None}),
        (RUNS, {"workflow_id": None}),
        ("/v1/workflows", {"name": "x", "definition": WORKFLOW, "extra": 1}),
        ("/v1/workflows/W/runs", {"inputs": {}, "extra": 1}),
    ],
)
def test_a_misshapen_body_is_a_mistake(
    served: Service, workflow: str, path: str, body: dict[str, Any]
) -> None:
    if body.get("workflow_id"):
        body = {**body, "workflow_id": workflow}
    assert refused(served, path.replace("W", workflow), body)[0] == 422


def test_the_scopes_select_evals(served: Service) -> None:
    own = served.register()
    first, second = (served.save(own, DOUBLED) for _ in range(2))
    third = served.save(own, {"kind": "exists"}, block="label", path=None)
    scopes: list[tuple[Any, int, Any, Any]] = [
        ("omitted", 3, None, None),
        (None, 3, None, None),
        ({"type": "workflow"}, 3, None, None),
        ({"type": "block", "block_id": "extract"}, 2, "extract", None),
        ({"type": "single", "eval_id": third}, 1, "label", third),
    ]
    for scope, count, block, eval_id in scopes:
        body = {"workflow_id": own, **({} if scope == "omitted" else {"scope": scope})}
        run = served.post(RUNS, body, status=202)
        assert set(run) == RUN_KEYS
        assert run["total_evals"] == count
        assert run["target"] == (None if block is None else {"type": "block", "block_id": block})
        assert (run["eval_id"], run["trigger"]) == (eval_id, {"type": "api"})
        ended = served.ended(f"{RUNS}/{run['id']}")
        assert set(ended["timing"]) == TIMING
        assert ended["timing"]["duration_ms"] >= 0
        counts = ended["counts"]
        assert (set(counts["lifecycle_counts"]), set(counts["outcome"])) == (
            LIFECYCLE_COUNTS,
            {"passed", "failed", "blocked"},
        )
        assert sum(counts["lifecycle_counts"].values()) == count
        assert len(served.results(run)) == count
    assert first != second


@pytest.mark.parametrize(
    "scope",
    [
        {"type": "block", "block_id": "absent"},
        {"type": "block", "block_id": "label"},
        {"type": "single", "eval_id": "wfnodeeval_absent"},
        None,
    ],
)
def test_a_scope_that_selects_nothing_is_refused(served: Service, scope: Any) -> None:
    own = served.register()
    if scope is not None:
        served.save(own, DOUBLED)
    status, detail = refused(served, RUNS, {"workflow_id": own, "scope": scope})
    assert (status, isinstance(detail, str)) == (400, True)


def test_a_run_of_an_unknown_workflow_is_refused(served: Service) -> None:
    assert refused(served, RUNS, {"workflow_id": "wf_absent"})[0] == 404


@pytest.mark.parametrize("field", ["assertion", "target", "source"])
def test_a_patch_takes_nothing_away(served: Service, workflow: str, field: str) -> None:
    saved = served.save(workflow, DOUBLED)
    before = served.get(f"{EVALS}/{saved}")
    answer = refused(served, f"{EVALS}/{saved}", {field: None}, "PATCH")
    assert answer == (400, f"{field} cannot be null")
    status, _ = refused(served, f"{EVALS}/{saved}", {"workflow_id": workflow}, "PATCH")
    assert status == 422
    assert served.get(f"{EVALS}/{saved}") == before
    assert served.client.patch(f"{EVALS}/{saved}", json={}).json() == before
    assert served.client.delete(f"{EVALS}/{saved}").status_code == 204


FILE_NAME = {
    "type": "code",
    "code": "def main(data):\n    return {'total': data['invoice']['filename']}\n",
    "inputs": {"invoice": {"from": "workflow.invoice", "type": "file"}},
}


def test_a_file_of_an_input_outlives_its_upload(served: Service) -> None:
    workflow = served.register({"blocks": {"extract": FILE_NAME}})
    uploaded = httpx.post(
        f"{served.url}/v1/files",
        files={"file": ("invoice.pdf", b"%PDF", "application/pdf")},
        timeout=60,
    )
    assert uploaded.status_code == 201
    stored = uploaded.json()
    assert set(stored) == {"id", "filename", "mime_type", "size", "sha256"}
    document = {key: stored[key] for key in ("id", "filename", "mime_type")}
    body = eval_body(workflow, {"kind": "equals", "expected": "invoice.pdf"})
    body["source"]["handle_inputs"] = {"input-document-0": {"type": "file", "document": document}}
    saved = served.post(EVALS, body)
    assert saved["source"]["handle_inputs"] == body["source"]["handle_inputs"]
    (result,) = served.results(served.run(workflow, {"type": "single", "eval_id": saved["id"]}))
    assert result["handle_inputs"] == body["source"]["handle_inputs"]
    assert result["verdict"] == "passed"
    content = served.client.get(f"/v1/files/{document['id']}/content")
    assert (content.content, content.headers["content-type"]) == (b"%PDF", "application/pdf")
    absent = {"type": "file", "document": {**document, "id": "file_absent"}}
    body["source"]["handle_inputs"]["input-document-0"] = absent
    assert refused(served, EVALS, body)[0] == 404
    assert served.client.delete(f"{EVALS}/{saved['id']}").status_code == 204


def test_the_filters_of_runs_and_results_hold_together(served: Service) -> None:
    own, other = served.register(), served.register()
    saved = served.save(own, DOUBLED)
    served.save(own, {"kind": "exists"}, block="label", path=None)
    served.save(other, DOUBLED)
    run = served.run(own, {"type": "single", "eval_id": saved})
    blocks = served.run(own, {"type": "block", "block_id": "label"})
    served.run(other)
    whole = served.run(own)

    def ids(path: str, **query: Any) -> set[str]:
        return {row["id"] for row in served.get(path, workflow_id=own, limit=100, **query)["data"]}

    runs = {run["id"], blocks["id"], whole["id"]}
    later = datetime.now(UTC) + timedelta(hours=1)
    assert ids(RUNS) == runs
    assert ids(RUNS, eval_id=saved) == {run["id"]}
    assert ids(RUNS, target_block_id="label") == {blocks["id"]}
    assert ids(RUNS, status="completed") == runs
    assert ids(RUNS, status=["error", "cancelled"]) == set()
    assert ids(RUNS, exclude_status="completed") == set()
    assert ids(RUNS, trigger_type="api") == runs
    assert ids(RUNS, trigger_type="mcp") == set()
    assert ids(RUNS, from_date=later.isoformat()) == set()
    assert ids(RUNS, to_date=later.isoformat()) == runs
    assert ids(RUNS, from_date=whole["timing"]["created_at"]) == {whole["id"]}
    assert len(ids(RESULTS)) == 4
    assert len(ids(RESULTS, eval_id=saved)) == 2
    assert len(ids(RESULTS, target_block_id="label", status="completed")) == 2
    assert ids(RESULTS, run_id=run["id"], target_block_id="label") == set()
    foreign = served.get(RUNS, workflow_id=other)["data"][0]["id"]
    answer = served.client.get(RUNS, params={"workflow_id": own, "after": foreign})
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("path", "parameter", "says"),
    [
        (RUNS, "eval", "Did you mean 'eval_id'?"),
        (RUNS, "test_id", "Did you mean 'eval_id'?"),
        (RESULTS, "page", "Known: after, before, "),
        ("/v1/workflows/wf_none", "version", "Did you mean 'version_id'?"),
    ],
)
def test_an_unknown_filter_is_a_mistake_that_names_the_known_ones(
    served: Service, path: str, parameter: str, says: str
) -> None:
    answer = served.client.get(path, params={parameter: "x"})
    (mistake,) = answer.json()["detail"]
    assert answer.status_code == 422
    assert (mistake["loc"], mistake["type"]) == (["query", parameter], "extra_forbidden")
    assert says in mistake["msg"]


@pytest.mark.parametrize("moment", ["-3083", "1700000000", "12.5", "today", "2026-02-30", ""])
def test_a_date_is_written_as_one(served: Service, moment: str) -> None:
    for name in ("from_date", "to_date"):
        answer = served.client.get(RUNS, params={name: moment})
        assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["query", name])
