"""What the service answers, in one process: pages, drafts, runs, drift and freshness."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import by_rules, model_server
from tests.support.service import WORKFLOW, Service, eval_body, local_service

EVALS, RUNS, RESULTS = (f"/v1/workflows/evals{part}" for part in ("", "/runs", "/results"))
DOUBLED = {"kind": "equals", "expected": 42}
EXISTS = {"kind": "exists"}
LOOP: dict[str, Any] = {
    "souls": {"one": {"system_prompt": "a"}, "two": {"system_prompt": "b"}},
    "blocks": {
        "rounds": {"type": "loop", "inner_block_refs": ["count"], "max_rounds": 1},
        "count": {"type": "code", "code": "def main(data):\n    return {'n': 1}\n"},
        "ask": {
            "type": "dispatch",
            "exits": [{"id": "left", "soul_ref": "one", "task": "x"}],
            "soul_ref": "two",
        },
    },
    "workflow": {"entry": "rounds", "transitions": [{"from": "rounds", "to": None}]},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with local_service(tmp_path_factory.mktemp("answers")) as running:
        yield running


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that executes nothing: what is queued there stays so."""
    with local_service(tmp_path_factory.mktemp("paused"), workers=0) as running:
        yield running


def queue(service: Service, workflow: str) -> str:
    return str(service.post(RUNS, {"workflow_id": workflow}, status=202)["id"])


# Pages


def test_a_page_follows_a_row_that_left_the_list(paused: Service) -> None:
    workflow = paused.register()
    evals = [paused.save(workflow, EXISTS) for _ in range(4)]
    first = paused.get(EVALS, workflow_id=workflow, limit=2)
    for row in first["data"]:
        assert paused.client.delete(f"{EVALS}/{row['id']}").status_code == 204
    after = first["list_metadata"]["after"]
    second = paused.get(EVALS, workflow_id=workflow, limit=2, after=after)
    assert [row["id"] for row in second["data"]] == [evals[1], evals[0]]

    runs = [queue(paused, workflow) for _ in range(3)]
    page = paused.get(RUNS, workflow_id=workflow, status="queued", limit=1)
    paused.post(f"{RUNS}/{runs[2]}/cancel", status=200)
    after = page["list_metadata"]["after"]
    page = paused.get(RUNS, workflow_id=workflow, status="queued", after=after)
    assert [row["id"] for row in page["data"]] == [runs[1], runs[0]]


def test_a_cursor_of_another_list_is_refused(paused: Service) -> None:
    one, two = paused.register(), paused.register()
    saved = paused.save(one, EXISTS)
    paused.save(two, EXISTS)
    for cursor in (saved, "wfnodeeval_absent"):
        answer = paused.client.get(EVALS, params={"workflow_id": two, "after": cursor})
        assert answer.status_code == 400, answer.text


def test_a_day_to_which_runs_are_listed_counts_as_a_whole(paused: Service) -> None:
    workflow = paused.register()
    paused.save(workflow, EXISTS)
    run = queue(paused, workflow)
    (queued,) = paused.get(RUNS, workflow_id=workflow)["data"]
    day = queued["timing"]["created_at"][: len("2026-01-31")]
    page = paused.get(RUNS, workflow_id=workflow, from_date=day, to_date=day)
    assert [row["id"] for row in page["data"]] == [run]


# Sources


def test_a_step_inside_a_loop_is_named_also_if_it_ran_once(served: Service) -> None:
    definition = {"blocks": {key: LOOP["blocks"][key] for key in ("rounds", "count")}}
    workflow = served.register(definition | {"workflow": LOOP["workflow"]})
    run = served.post(f"/v1/workflows/{workflow}/runs", {"inputs": {}}, status=202)["id"]
    served.ended(f"/v1/workflows/runs/{run}")
    steps = served.get(f"/v1/workflows/runs/{run}/steps")["data"]
    (step,) = (step for step in steps if step["block_id"] == "count")
    body = eval_body(workflow, EXISTS, block="count") | {
        "source": {"type": "run_step", "run_id": run}
    }
    answer = served.client.post(EVALS, json=body)
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (
        422,
        ["body", "source", "step_id"],
    )
    body["source"]["step_id"] = step["id"]
    served.post(EVALS, body)


# Latest results


def test_a_cancelled_result_is_the_latest_one(paused: Service) -> None:
    workflow = paused.register()
    saved = paused.save(workflow, EXISTS)
    run = queue(paused, workflow)
    paused.post(f"{RUNS}/{run}/cancel", status=200)
    (result,) = paused.results({"id": run})
    shown = paused.get(f"{EVALS}/{saved}")
    summary = shown["latest_run_summary"]
    assert (summary["run_record_id"], summary["status"]) == (result["id"], "cancelled")
    assert summary["outcome"] is None
    assert shown["latest_passing_run_summary"] is shown["latest_failing_run_summary"] is None
    assert shown["freshness"] == {"status": "fresh", "reasons": []}


# Freshness


def changed(definition: dict[str, Any], *path: str, value: Any) -> dict[str, Any]:
    copied: dict[str, Any] = copy.deepcopy(definition)
    part: Any = copied
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("block", "path", "value"),
    [
        ("ask", ("souls", "one", "system_prompt"), "c"),
        ("ask", ("souls", "two", "system_prompt"), "c"),
        ("rounds", ("blocks", "count", "code"), "def main(data):\n    return {'n': 2}\n"),
        ("count", ("blocks", "count", "code"), "def main(data):\n    return {'n': 2}\n"),
    ],
    ids=["soul of an exit", "soul of the block", "block inside", "the block"],
)
def test_what_a_block_asks_and_has_inside_belongs_to_it(
    paused: Service, block: str, path: tuple[str, ...], value: Any
) -> None:
    workflow = paused.register(LOOP)
    saved = paused.save(workflow, EXISTS, block=block)
    paused.post(f"{RUNS}/{queue(paused, workflow)}/cancel", status=200)
    draft = {"definition": changed(LOOP, *path, value=value)}
    assert paused.get(f"{EVALS}/{saved}")["freshness"]["status"] == "fresh"
    assert paused.client.put(f"/v1/workflows/{workflow}/draft", json=draft).status_code == 200
    freshness = paused.get(f"{EVALS}/{saved}")["freshness"]
    assert freshness == {"status": "stale", "reasons": ["validity_changed"]}


def test_another_block_of_the_draft_changes_nothing(paused: Service) -> None:
    workflow = paused.register(WORKFLOW)
    saved = paused.save(workflow, EXISTS)
    paused.post(f"{RUNS}/{queue(paused, workflow)}/cancel", status=200)
    code = "def main(data):\n    return 'other'\n"
    draft = {"definition": changed(dict(WORKFLOW), "blocks", "label", "code", value=code)}
    assert paused.client.put(f"/v1/workflows/{workflow}/draft", json=draft).status_code == 200
    assert paused.get(f"{EVALS}/{saved}")["freshness"]["status"] == "fresh"
    source = eval_body(workflow, EXISTS, amount=22)["source"]
    assert served_patch(paused, saved, {"source": source}) == ["inputs_changed"]
    assert served_patch(paused, saved, {"name": "other"}) == ["inputs_changed"]
    assertion = eval_body(workflow, DOUBLED)["assertion"]
    both = ["validity_changed", "inputs_changed"]
    assert served_patch(paused, saved, {"assertion": assertion}) == both


def served_patch(service: Service, saved: str, body: Any) -> list[str]:
    """Return the reasons of staleness after a change of an eval."""
    answer = service.client.patch(f"{EVALS}/{saved}", json=body)
    assert answer.status_code == 200, answer.text
    reasons: list[str] = answer.json()["freshness"]["reasons"]
    return reasons


# Bodies that are refused


def test_a_workflow_without_blocks_is_refused(paused: Service) -> None:
    definitions: list[tuple[Any, str]] = [({"blocks": {}}, ""), ("blocks: {}\n", "line 1: ")]
    for definition, line in definitions:
        answer = paused.client.post("/v1/workflows", json={"name": "x", "definition": definition})
        (mistake,) = answer.json()["detail"]
        assert (answer.status_code, mistake["loc"]) == (422, ["body", "definition", "blocks"])
        assert mistake["msg"] == f"{line}a workflow has one block at least, got none"


def test_inputs_of_handles_that_the_block_does_not_have_are_refused(paused: Service) -> None:
    workflow = paused.register()
    body = eval_body(workflow, EXISTS)
    inputs = body["source"]["handle_inputs"]
    for name in ("input-json-2", "amount"):
        inputs[name] = {"type": "json", "data": 1}
    answer = paused.client.post(EVALS, json=body)
    assert answer.status_code == 422, answer.text
    places = [mistake["loc"][1:] for mistake in answer.json()["detail"]]
    assert places == [["source", "handle_inputs", name] for name in ("input-json-2", "amount")]
    message = "the block has no such input handle; it has input-json-0, input-json-1"
    assert {mistake["msg"] for mistake in answer.json()["detail"]} == {message}

    saved = paused.save(workflow, EXISTS)
    answer = paused.client.patch(f"{EVALS}/{saved}", json={"source": body["source"]})
    assert answer.status_code == 422, answer.text


def test_inputs_stay_of_a_handle_that_the_draft_has_lost(paused: Service) -> None:
    workflow = paused.register()
    saved = paused.save(workflow, EXISTS)
    inputs = {"amount": "workflow.amount"}
    draft = {"definition": changed(dict(WORKFLOW), "blocks", "extract", "inputs", value=inputs)}
    assert paused.client.put(f"/v1/workflows/{workflow}/draft", json=draft).status_code == 200
    source = eval_body(workflow, EXISTS, amount=22)["source"]
    answer = paused.client.patch(f"{EVALS}/{saved}", json={"source": source})
    assert (answer.status_code, answer.json()["source"]) == (200, source)


# Values


def test_numbers_of_a_condition_come_back_as_they_were_written(paused: Service) -> None:
    workflow = paused.register()
    condition = {"kind": "number_compare", "op": "eq", "expected": 2**53 + 1}
    answer = paused.client.post(EVALS, json=eval_body(workflow, condition))
    assert f'"expected":{2**53 + 1}' in answer.text


# Models


def test_souls_judges_and_embeddings_are_the_targets_of_the_served_folder(
    tmp_path: Path,
) -> None:
    rules = {"polite": '{"label": "yes", "reasoning": "r"}', "greet": "hello"}
    with model_server(script=by_rules(rules)) as server, local_service(tmp_path) as running:
        (tmp_path / "targets.yaml").write_text(
            "targets:\n"
            + "".join(
                f"  - {{name: {name}, provider: openai, model: m, api_key: k, "
                f"base_url: '{server.base_url}'}}\n"
                for name in ("local", "judge", "embeddings")
            )
        )
        souls = {"host": {"provider": "local", "model_name": "m", "system_prompt": "greet"}}
        block = {"type": "linear", "soul_ref": "host"}
        workflow = running.register({"souls": souls, "blocks": {"hello": block}})
        judged = {"kind": "llm_judged_as", "rubric": "polite"}
        similar = {"kind": "similarity_gte", "reference": "hello", "threshold": 0.9}
        for condition in (
            {"kind": "contains", "expected": "hello"},
            judged,
            {**similar, "method": "embeddings"},
        ):
            running.save(workflow, condition, block="hello", path=None)
        run = running.run(workflow)
        assert run["counts"]["outcome"] == {"passed": 3, "failed": 0, "blocked": 0}, [
            (result["lifecycle"], result["assertion_result"]) for result in running.results(run)
        ]
        started = running.post(f"/v1/workflows/{workflow}/runs", {"inputs": {}}, status=202)
        ended = running.ended(f"/v1/workflows/runs/{started['id']}")
        assert ended["output"] == "hello", ended


# Mistakes


def test_a_mistake_in_yaml_text_has_its_line(served: Service) -> None:
    text = "blocks:\n  a: {type: cod}\n  a: {type: code}\n"
    for definition, message in (
        (text, "line 3: duplicate key 'a' (first at line 2)"),
        (text.replace("  a: {type: code}\n", ""), "line 2: unknown type 'cod'"),
    ):
        answer = served.client.post("/v1/workflows", json={"name": "w", "definition": definition})
        (mistake,) = answer.json()["detail"]
        assert (answer.status_code, mistake["loc"][:2]) == (422, ["body", "definition"])
        assert mistake["msg"].startswith(message)


def test_a_body_without_a_content_type_is_told_what_is_missing(served: Service) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded"):
        headers = {"Content-Type": content_type}
        answer = served.client.post(EVALS, content=b"{}", headers=headers)
        (mistake,) = answer.json()["detail"]
        assert (answer.status_code, mistake["loc"]) == (422, ["body"])
        assert "Content-Type: application/json" in mistake["msg"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ([("file", ("a", b"1")), ("file", ("b", b"2"))], "file"),
        ([("file", ("a", b"1")), ("other", ("b", b"2"))], "other"),
        ([("file", ("a", b"1")), ("name", (None, b"x"))], "name"),
    ],
    ids=["two files", "another file", "another field"],
)
def test_a_form_has_one_file_and_nothing_else(served: Service, fields: Any, place: str) -> None:
    answer = served.client.post("/v1/files", files=fields)
    (mistake,) = answer.json()["detail"]
    assert (answer.status_code, mistake["loc"]) == (422, ["body", place])
