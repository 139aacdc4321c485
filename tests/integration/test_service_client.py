"""The typed client and `evalcore evals` against a real service."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from evalcore.client import Client, ServiceRefusedError
from evalcore.errors import UsageError
from tests.support.service import Service, eval_body
from tests.support.shell import evalcore

pytestmark = [pytest.mark.multiprocess, pytest.mark.slow, pytest.mark.xdist_group("service")]
DOUBLED = {"kind": "equals", "expected": 42}


@pytest.fixture
def served(open_service: Service) -> Service:
    return open_service


def evals(served: Service, *arguments: str, code: int = 0) -> str:
    """Return what `evalcore evals` printed."""
    ended = evalcore("evals", "--server", served.url, *arguments, cwd=served.folder)
    assert ended.code == code, ended.out + ended.err
    return ended.out + ended.err


def test_a_client_saves_and_runs_an_eval(served: Service) -> None:
    workflow = served.register()
    with Client(served.url) as client:
        saved = client.evals.create(**eval_body(workflow, DOUBLED))
        started = client.runs.create(workflow_id=workflow)
        ended = client.runs.wait(started.id)
        (result,) = client.results.list(run_id=ended.id)
        assert [each.id for each in client.evals.list(workflow)] == [saved.id]
    assert (ended.counts.outcome.passed, result.eval_id) == (1, saved.id)


def test_a_refusal_says_the_status_and_why(served: Service) -> None:
    with Client(served.url) as client, pytest.raises(ServiceRefusedError, match="404") as refused:
        client.evals.get("wfnodeeval_none")
    assert refused.value.status == 404


def test_a_service_that_is_away_is_named() -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(UsageError, match="evalcore serve"):
        client.evals.get("x")


def test_the_command_line_creates_lists_and_runs(served: Service, tmp_path: Path) -> None:
    workflow = served.register()
    file = tmp_path / "eval.json"
    file.write_bytes(orjson.dumps({**eval_body(workflow, DOUBLED), "name": "doubled"}))
    saved = orjson.loads(evals(served, "create", str(file)))["id"]
    assert "doubled  never run" in evals(served, "list", workflow)
    assert "1 passed" in evals(served, "run", workflow, "--wait")
    assert "doubled  passed  drift none  fresh" in evals(served, "list", workflow)
    evals(served, "delete", saved)
    assert evals(served, "list", workflow) == ""


def test_waiting_for_a_failed_run_exits_with_1(served: Service) -> None:
    workflow = served.register()
    served.save(workflow, {"kind": "equals", "expected": 1})
    told = evals(served, "run", workflow, "--wait", code=1)
    run = told.split()[0]
    assert "42 is not 1" in evals(served, "results", run)


def test_a_mistake_in_a_file_is_told_with_its_line(served: Service, tmp_path: Path) -> None:
    file = tmp_path / "eval.yaml"
    file.write_text("workflow_id: wf_x\ntarget: {type: block}\n")
    told = evals(served, "create", str(file), code=2)
    assert f"{file}:2: target.block_id: is required" in told
