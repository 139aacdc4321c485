"""Saved evals over REST: a real server process on SQLite and PostgreSQL, a store in a folder."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from evalcore.service.auth import Scope
from tests.support.postgresql import available_postgresql
from tests.support.service import (
    EVALCORE,
    WORKFLOW,
    Service,
    eval_body,
    local_service,
    service,
)

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.xdist_group("service")]
DOUBLED = {"kind": "equals", "expected": 42}


@pytest.fixture(
    scope="module",
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.extended)],
)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    if request.param == "sqlite":
        yield request.getfixturevalue("open_service")
        return
    with (
        available_postgresql() as server,
        service(
            tmp_path_factory.mktemp("service"), "--rate", "0", "--database", server.new_database()
        ) as running,
    ):
        yield running


def test_a_run_counts_every_child_once(served: Service) -> None:
    workflow = served.register()
    served.save(workflow, DOUBLED)
    served.save(workflow, {"kind": "equals", "expected": 1})
    served.save(workflow, {"kind": "starts_with", "expected": "4"})
    served.save(workflow, DOUBLED, amount="broken")
    run = served.run(workflow)
    assert run["lifecycle"] == {"status": "completed"}
    assert run["total_evals"] == 4
    assert run["counts"] == {
        "lifecycle_counts": {
            "pending": 0,
            "queued": 0,
            "running": 0,
            "completed": 3,
            "error": 1,
            "cancelled": 0,
        },
        "outcome": {"passed": 1, "failed": 1, "blocked": 1},
    }


def test_a_block_that_fails_is_an_execution_error_without_a_verdict(
    served: Service,
) -> None:
    workflow = served.register()
    saved = served.save(workflow, DOUBLED, amount="broken")
    run = served.run(workflow)
    (result,) = served.results(run)
    assert result["lifecycle"]["status"] == "error"
    assert "no amount" in result["lifecycle"]["error"]["message"]
    absent = ("verdict", "verdict_summary", "assertion_result", "handle_outputs")
    assert {name: result[name] for name in absent} == dict.fromkeys(absent)
    assert run["counts"]["lifecycle_counts"]["error"] == 1
    assert run["counts"]["outcome"] == {"passed": 0, "failed": 0, "blocked": 0}
    latest = served.get(f"/v1/workflows/evals/{saved}")["latest_run_summary"]
    assert (latest["status"], latest["outcome"]) == ("error", None)


def test_changing_the_draft_shows_drift_until_the_eval_runs_again(served: Service) -> None:
    workflow = served.register()
    saved = served.save(workflow, DOUBLED)
    served.run(workflow)
    assert served.get(f"/v1/workflows/evals/{saved}")["freshness"]["status"] == "fresh"
    changed = {**WORKFLOW["blocks"]["extract"]}
    changed["outputs"] = {"type": "object", "properties": {"sum": {"type": "number"}}}
    changed["code"] = "def main(data):\n    return {'sum': 1}\n"
    definition = {**WORKFLOW, "blocks": {**WORKFLOW["blocks"], "extract": changed}}
    answer = served.client.put(f"/v1/workflows/{workflow}/draft", json={"definition": definition})
    assert answer.status_code == 200, answer.text
    shown = served.get(f"/v1/workflows/evals/{saved}")
    assert (shown["schema_drift"], shown["assertion_drift_status"]) == ("drifted", "broken")
    assert shown["drift"] == {"status": "broken"}
    assert shown["freshness"] == {"status": "stale", "reasons": ["validity_changed"]}
    (result,) = served.results(served.run(workflow))
    assert result["verdict"] == "blocked"
    assert result["assertion_result"]["failure"]["code"] == "path_unresolved"
    assert served.get(f"/v1/workflows/evals/{saved}")["freshness"]["status"] == "fresh"


def test_an_eval_can_freeze_the_inputs_of_a_step(served: Service) -> None:
    workflow = served.register()
    body = {"inputs": {"amount": 4, "name": "Bo"}}
    run = served.post(f"/v1/workflows/{workflow}/runs", body, status=202)
    run = served.ended(f"/v1/workflows/runs/{run['id']}")
    assert run["output"] == "Bo!"
    steps = served.get(f"/v1/workflows/runs/{run['id']}/steps")["data"]
    assert [step["block_id"] for step in steps] == ["label", "extract"]
    source = {"type": "run_step", "run_id": run["id"]}
    body = {**eval_body(workflow, {"kind": "equals", "expected": 8}), "source": source}
    saved = served.post("/v1/workflows/evals", body)
    assert saved["source"] == {**source, "step_id": None}
    (result,) = served.results(served.run(workflow))
    assert result["verdict"] == "passed"
    assert result["handle_inputs"]["input-json-1"] == {"type": "json", "data": "Bo"}


def test_the_same_idempotency_key_gives_the_same_run(served: Service) -> None:
    workflow = served.register()
    served.save(workflow, DOUBLED)
    body = {"workflow_id": workflow}
    path, key = "/v1/workflows/evals/runs", {"Idempotency-Key": f"once-{workflow}"}
    first, again = (served.post(path, body, status=202, **key)["id"] for _ in range(2))
    assert first == again
    other = served.register()
    refused = served.client.post(path, json={"workflow_id": other}, headers=key)
    assert refused.status_code == 409


def test_pages_go_through_a_list_once_in_both_directions(served: Service) -> None:
    workflow = served.register()
    saved = [served.save(workflow, DOUBLED) for _ in range(5)]
    path = "/v1/workflows/evals"
    first = served.get(path, workflow_id=workflow, limit=2)
    second = served.get(path, workflow_id=workflow, limit=2, after=first["list_metadata"]["after"])
    last = served.get(path, workflow_id=workflow, limit=2, after=second["list_metadata"]["after"])
    ids = [row["id"] for page in (first, second, last) for row in page["data"]]
    assert ids == saved[::-1]
    assert first["list_metadata"]["before"] is None
    assert last["list_metadata"]["after"] is None
    before = last["list_metadata"]["before"]
    assert served.get(path, workflow_id=workflow, limit=2, before=before)["data"] == second["data"]


def patched(served: Service, saved: str, body: Any) -> httpx.Response:
    return served.client.patch(f"/v1/workflows/evals/{saved}", json=body)


def test_a_patch_changes_what_it_names(served: Service) -> None:
    workflow = served.register()
    saved = served.save(workflow, DOUBLED)
    before = served.get(f"/v1/workflows/evals/{saved}")
    answer = patched(served, saved, {"name": "new"})
    assert answer.json() == {**before, "name": "new"}
    assertion = {"target": {"output_handle_id": "output-json-0"}, "condition": {"kind": "exists"}}
    after = patched(served, saved, {"assertion": assertion}).json()
    assert after["assertion"]["condition"] == {"kind": "exists"}
    assert after["assertion"]["target"]["path"] is None


def test_a_deleted_eval_keeps_its_results(served: Service) -> None:
    workflow = served.register()
    saved = served.save(workflow, DOUBLED)
    run = served.run(workflow)
    assert served.client.delete(f"/v1/workflows/evals/{saved}").status_code == 204
    assert served.client.get(f"/v1/workflows/evals/{saved}").status_code == 404
    assert [result["eval_id"] for result in served.results(run)] == [saved]
    answer = served.client.post("/v1/workflows/evals/runs", json={"workflow_id": workflow})
    assert answer.status_code == 400


def test_scopes_read_run_evals_and_register_workflows(tmp_path: Path) -> None:
    with local_service(tmp_path, with_token=True) as served:
        client = cast(TestClient, served.client)
        issue = cast(FastAPI, client.app).state.context.tokens.issue
        assert client.portal is not None
        workflow = served.register()
        eval_id = served.save(workflow, DOUBLED)
        changes: dict[str, list[tuple[str, str, Any, int]]] = {
            "evals": [
                ("POST", "/v1/workflows/evals", eval_body(workflow, DOUBLED), 201),
                ("PATCH", f"/v1/workflows/evals/{eval_id}", {"name": "other"}, 200),
                ("POST", "/v1/workflows/evals/runs", {"workflow_id": workflow}, 202),
                ("POST", f"/v1/workflows/{workflow}/runs", {"inputs": {}}, 202),
            ],
            "workflows": [
                ("POST", "/v1/workflows", {"name": "x", "definition": WORKFLOW}, 201),
                ("PUT", f"/v1/workflows/{workflow}/draft", {"definition": WORKFLOW}, 200),
                ("POST", f"/v1/workflows/{workflow}/publish", None, 200),
                ("DELETE", "/v1/workflows/wf_other", None, 404),
            ],
        }
        allowed = {"read": (), "evals": ("evals",)}
        for scope in Scope:
            issued = client.portal.call(issue, "test", scope)
            headers = {"Authorization": f"Bearer {issued.secret}"}
            listed = client.get("/v1/workflows", headers=headers)
            assert len(listed.json()["data"]) >= 1
            for needed, requests in changes.items():
                may = needed in allowed.get(scope, ("evals", "workflows"))
                for method, path, body, status in requests:
                    answer = client.request(method, path, json=body, headers=headers)
                    assert answer.status_code == (status if may else 403), (scope, method, path)
                    if not may:
                        assert f"has the scope '{scope}', not '{needed}'" in answer.text


def test_a_taken_port_is_one_message(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [EVALCORE, "serve", "--insecure", "--port", str(port)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 2
    assert ended.stderr.endswith(f"port {port} of 127.0.0.1 is taken; choose another by --port\n")
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "evalcore.db").exists()
