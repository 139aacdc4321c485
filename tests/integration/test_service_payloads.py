"""Large values of the service: pages are bounded, and a lost object damages its record only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcore.service import context as payloads
from evalcore.service import export as exports
from tests.support.service import Service, eval_body, local_service

EVALS, RUNS, RESULTS = (f"/v1/workflows/evals{part}" for part in ("", "/runs", "/results"))
EXISTS = {"kind": "exists"}
LARGE = 100_000
ECHO = {
    "type": "code",
    "code": "def main(data):\n    return {'total': data['amount']}\n",
    "inputs": {"amount": "workflow.amount", "name": "workflow.name"},
}
ECHOING = {"blocks": {"extract": ECHO}, "workflow": {"entry": "extract", "transitions": []}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with local_service(tmp_path_factory.mktemp("payloads")) as running:
        yield running


def objects(served: Service) -> set[Path]:
    return {*(served.folder / "store" / "service").glob("payloads/*/*.json")}


def pages(served: Service, path: str, cursor: str = "after", **query: Any) -> list[list[str]]:
    """Return the ids of all pages of a list, from one end of it to the other."""
    listed: list[list[str]] = []
    while True:
        page = served.get(path, limit=100, **query)
        listed.append([row["id"] for row in page["data"]])
        if page["list_metadata"][cursor] is None:
            return listed
        query[cursor] = page["list_metadata"][cursor]


def test_a_page_ends_before_its_values_are_too_large(
    served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = served.register(ECHOING)
    evals = [
        served.save(workflow, EXISTS, amount=f"{number}" * LARGE) for number in (1, 2, 3, 4, 5)
    ]
    run = served.run(workflow)
    results = [result["id"] for result in served.results(run)]
    whole = served.get(RESULTS, run_id=run["id"])["data"]
    # Inputs, outputs and the value that was asserted: three of each result.
    monkeypatch.setattr(payloads, "PAGE_BYTES", 7 * LARGE)
    listed = pages(served, RESULTS, run_id=run["id"])
    assert listed == [results[0:2], results[2:4], results[4:]]
    newer = pages(served, RESULTS, "before", run_id=run["id"], before=results[-1])
    assert newer == [results[2:4], results[0:2]]
    assert served.get(RESULTS, run_id=run["id"], limit=1)["data"] == whole[:1]
    saved = [*reversed(evals)]
    assert pages(served, EVALS, workflow_id=workflow) == [saved]
    # A record that is too large for a page is one.
    monkeypatch.setattr(payloads, "PAGE_BYTES", LARGE)
    assert pages(served, RESULTS, run_id=run["id"]) == [[result] for result in results]
    assert pages(served, EVALS, workflow_id=workflow) == [[row] for row in saved]


@pytest.mark.parametrize("evals", [0, 2, 3])
def test_an_export_that_is_read_in_pages_is_whole(
    served: Service, monkeypatch: pytest.MonkeyPatch, evals: int
) -> None:
    workflow = served.register(ECHOING)
    saved = [served.save(workflow, EXISTS, amount=f"ü{number}" * LARGE) for number in range(evals)]
    whole = served.get(f"/v1/workflows/{workflow}/export")
    assert [each["id"] for each in whole["evals"]] == saved
    assert all(
        each["source"]["handle_inputs"]["input-json-0"]["data"] == f"ü{number}" * LARGE
        for number, each in enumerate(whole["evals"])
    )
    monkeypatch.setattr(exports, "_ROWS_AT_ONCE", 2)
    monkeypatch.setattr(exports, "PAGE_BYTES", LARGE)
    monkeypatch.setattr(payloads, "PAGE_BYTES", 2 * LARGE)
    assert served.get(f"/v1/workflows/{workflow}/export") == whole


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_lost_value_is_told_by_its_record_and_the_list_answers(
    served: Service, damage: str
) -> None:
    workflow = served.register(ECHOING)
    small = served.save(workflow, EXISTS)
    before = objects(served)
    large = served.save(workflow, EXISTS, amount=damage * LARGE)
    run = served.run(workflow)
    lost = objects(served) - before
    assert len(lost) == 4  # source, inputs, outputs, assertion result
    for path in lost:
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-1])

    by_eval = {row["eval_id"]: row for row in served.results(run)}
    assert "damage" not in by_eval[small]
    result = by_eval[large]
    fields = ["handle_inputs", "handle_outputs", "assertion_result"]
    assert result["damage"]["fields"] == fields
    assert [result[field] for field in fields] == [None, None, None]
    assert result["verdict"] == "passed"
    words = "is missing from the store" if damage == "missing" else "is damaged"
    assert words in result["damage"]["message"]
    assert served.get(f"{RESULTS}/{result['id']}") == result

    saved = {row["id"]: row for row in served.get(EVALS, workflow_id=workflow)["data"]}
    assert (saved[large]["source"], saved[large]["damage"]["fields"]) == (None, ["source"])
    assert saved[small]["source"] is not None
    assert served.get(f"{EVALS}/{large}") == saved[large]

    # It is not executed, the other one is, and writing the inputs again mends it.
    run = served.run(workflow)
    counts = run["counts"]["lifecycle_counts"]
    assert (run["lifecycle"]["status"], counts["completed"], counts["error"]) == ("completed", 1, 1)
    by_eval = {row["eval_id"]: row for row in served.results(run)}
    assert by_eval[large]["lifecycle"]["error"]["code"] == "DamagedPayloadError"
    run = served.run(workflow, {"type": "single", "eval_id": large})
    assert run["counts"]["lifecycle_counts"]["error"] == 1
    answer = served.client.get(f"/v1/workflows/{workflow}/export")
    assert (answer.status_code, words in answer.json()["detail"]) == (409, True)
    answer = served.client.patch(f"{EVALS}/{large}", json={"name": "new"})
    assert (answer.status_code, words in answer.json()["detail"]) == (409, True)
    source = eval_body(workflow, EXISTS, amount=damage * LARGE)["source"]
    assert served.client.patch(f"{EVALS}/{large}", json={"source": source}).status_code == 200
    assert "damage" not in served.get(f"{EVALS}/{large}")
    assert served.run(workflow)["counts"]["outcome"]["passed"] == 2


def test_a_workflow_whose_definition_is_lost_is_listed(served: Service) -> None:
    block = {**ECHO, "code": f"{ECHO['code']}# {'x' * LARGE}\n"}
    registered = served.register()
    before = objects(served)
    workflow = served.register({"blocks": {"extract": block}})
    saved = served.save(workflow, EXISTS)
    for lost in objects(served) - before:
        lost.unlink()
    rows = {row["id"]: row for row in served.get("/v1/workflows", limit=100)["data"]}
    assert (rows[workflow]["blocks"], rows[workflow]["damage"]["fields"]) == (None, ["blocks"])
    assert "damage" not in rows[registered]
    assert served.get(f"/v1/workflows/{workflow}") == rows[workflow]
    (row,) = served.get(EVALS, workflow_id=workflow)["data"]
    assert row["damage"]["fields"] == ["schema_drift", "freshness"]
    assert (row["schema_drift"], row["freshness"]["status"]) == ("unknown", "unknown")
    for method, path, body in (
        ("POST", RUNS, {"workflow_id": workflow}),
        ("POST", EVALS, eval_body(workflow, EXISTS)),
        ("POST", f"/v1/workflows/{workflow}/publish", None),
        ("PATCH", f"{EVALS}/{saved}", {"name": "new"}),
    ):
        answer = served.client.request(method, path, json=body)
        assert (answer.status_code, "is missing" in answer.json()["detail"]) == (409, True), path
    assert served.get(f"/v1/workflows/{workflow}")["version_id"].startswith("draft_")
    assert served.client.get(f"/v1/workflows/{workflow}?version_id=v1").status_code == 404
    assert served.client.put(
        f"/v1/workflows/{workflow}/draft", json={"definition": {"blocks": {"extract": block}}}
    ).is_success
    assert "damage" not in served.get(f"{EVALS}/{saved}")


def test_a_lost_file_is_told_by_its_content(served: Service) -> None:
    uploaded = served.client.post("/v1/files", files={"file": ("a.txt", b"a", "text/plain")})
    path = f"/v1/files/{uploaded.json()['id']}"
    (file,) = (served.folder / "store" / "service" / "files").glob("*/*")
    file.write_bytes(b"b")
    answer = served.client.get(f"{path}/content")
    assert (answer.status_code, "is not what was uploaded" in answer.text) == (409, True)
    file.unlink()
    answer = served.client.get(f"{path}/content")
    assert (answer.status_code, "is missing from the store" in answer.text) == (409, True)
    assert served.get(path)["size"] == 1
