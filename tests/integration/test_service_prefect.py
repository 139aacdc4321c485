"""Runs of saved evals that Prefect's workers execute, and what happens where they cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcore.storage.address import open_store
from evalcore.storage.runs import list_runs
from tests.support.prefect_project import Project
from tests.support.prefect_server import PrefectServer
from tests.support.processes import until
from tests.support.service import Service, service

DOUBLED = {"kind": "equals", "expected": 42}
pytestmark = [
    pytest.mark.extended,
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
]
_RECORDED_S = 300.0
RUNS = "/v1/workflows/evals/runs"


@pytest.fixture
def served(
    running_prefect: PrefectServer, working: Project, tmp_path: Path
) -> Iterator[tuple[Service, PrefectServer]]:
    """A service beside a Prefect server with a worker."""
    assert working.folder.is_dir()
    environment = running_prefect.environment | {"EVALCORE_TAKE_UP_S": "120"}
    with service(tmp_path, "--rate", "0", environment=environment) as running:
        yield running, running_prefect


@pytest.fixture
def paused(running_prefect: PrefectServer, working: Project) -> Iterator[PrefectServer]:
    """The Prefect server, whose workers get no flow runs."""
    assert working.folder.is_dir()
    work_pool(running_prefect, "pause")
    yield running_prefect
    work_pool(running_prefect, "resume")


def work_pool(server: PrefectServer, verb: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "work-pool", verb, "evalcore"],
        env=server.environment,
        check=True,
        capture_output=True,
    )


def engine_run_of(running: Service) -> str:
    """Return the id of the only run in a service's store."""
    (manifest,) = list_runs(open_store(str(running.folder / ".evalcore")))
    return manifest.id


def flow_states(server: PrefectServer, run_id: str) -> list[str]:
    """Return the names of the states of the flow runs that were submitted for a run."""
    import httpx

    key = {"flow_runs": {"idempotency_key": {"any_": [f"evalcore-run-{run_id}"]}}}
    answer = httpx.post(f"{server.url}/flow_runs/filter", json=key, timeout=60)
    rows: list[dict[str, Any]] = answer.json()
    return [row["state"]["name"] for row in rows]


def test_a_worker_of_prefect_executes_a_run(served: tuple[Service, PrefectServer]) -> None:
    running, server = served
    workflow = running.register()
    running.save(workflow, DOUBLED)
    running.save(workflow, {"kind": "equals", "expected": 1})
    run = running.run(workflow)
    log = (running.folder / "service.log").read_text()
    assert run["counts"]["outcome"] == {"passed": 1, "failed": 1, "blocked": 0}, log
    assert "own process" not in log
    assert run["timing"]["started_at"] is not None
    run_id = engine_run_of(running)
    until(lambda: flow_states(server, run_id) == ["GateFailed"], seconds=_RECORDED_S)


def test_the_service_executes_a_run_that_no_worker_takes(
    paused: PrefectServer, tmp_path: Path
) -> None:
    environment = paused.environment | {"EVALCORE_TAKE_UP_S": "1"}
    with service(tmp_path, "--rate", "0", environment=environment) as running:
        workflow = running.register()
        running.save(workflow, DOUBLED)
        run = running.run(workflow)
        assert run["counts"]["outcome"]["passed"] == 1
        assert run["timing"]["started_at"] is not None
        assert flow_states(paused, engine_run_of(running)) == ["Cancelled"]
    log = (tmp_path / "service.log").read_text()
    assert "no worker has begun it within 1 s (EVALCORE_TAKE_UP_S)" in log


def test_a_cancelled_run_cancels_its_flow_run(paused: PrefectServer, tmp_path: Path) -> None:
    environment = paused.environment | {"EVALCORE_TAKE_UP_S": "600"}
    with service(tmp_path, "--rate", "0", environment=environment) as running:
        workflow = running.register()
        running.save(workflow, DOUBLED)
        body = {"workflow_id": workflow}
        run = running.post("/v1/workflows/evals/runs", body, status=202)
        wait_for_states(running, paused, ["Scheduled", "Late"])
        waiting = running.get(f"{RUNS}/{run['id']}")
        assert (waiting["lifecycle"], waiting["timing"]["started_at"]) == (
            {"status": "queued"},
            None,
        )
        assert waiting["counts"]["lifecycle_counts"]["queued"] == 1
        running.post(f"/v1/workflows/evals/runs/{run['id']}/cancel", status=200)
        wait_for_states(running, paused, ["Cancelled"])


def test_a_run_that_is_cancelled_after_its_service_was_killed_cancels_its_flow_run(
    paused: PrefectServer, tmp_path: Path
) -> None:
    environment = paused.environment | {"EVALCORE_TAKE_UP_S": "600"}
    arguments = ("--rate", "0", "--lease", "2")
    with service(tmp_path, *arguments, environment=environment) as first:
        workflow = first.register()
        first.save(workflow, DOUBLED)
        run = first.post(RUNS, {"workflow_id": workflow}, status=202)
        wait_for_states(first, paused, ["Scheduled", "Late"])
        first.kill()
    with service(tmp_path, *arguments, environment=environment) as second:
        second.post(f"{RUNS}/{run['id']}/cancel", status=200)
        wait_for_states(second, paused, ["Cancelled"])
        assert second.get(f"{RUNS}/{run['id']}")["lifecycle"] == {"status": "cancelled"}


def test_a_service_that_ends_leaves_its_flow_run_to_the_next(
    paused: PrefectServer, tmp_path: Path
) -> None:
    environment = paused.environment | {"EVALCORE_TAKE_UP_S": "600"}
    with service(tmp_path, "--rate", "0", environment=environment) as first:
        workflow = first.register()
        first.save(workflow, DOUBLED)
        run = first.post(RUNS, {"workflow_id": workflow}, status=202)
        wait_for_states(first, paused, ["Scheduled", "Late"])
        # uvicorn ends as the signal has it, after everything is stopped.
        assert first.kill(signal.SIGTERM) in {0, -signal.SIGTERM}
    log = (tmp_path / "service.log").read_text()
    assert "Traceback" not in log
    with service(tmp_path, "--rate", "0", environment=environment) as second:
        work_pool(paused, "resume")
        ended = second.ended(f"{RUNS}/{run['id']}")
        assert ended["counts"]["outcome"]["passed"] == 1
        assert len(flow_states(paused, engine_run_of(second))) == 1


def wait_for_states(running: Service, server: PrefectServer, names: list[str]) -> None:
    """Return once the only run of a service has one flow run, in one of these states."""

    def states() -> list[str]:
        runs = [*list_runs(open_store(str(running.folder / ".evalcore")))]
        return flow_states(server, runs[0].id) if runs else []

    until(lambda: states()[:1] in [[name] for name in names], seconds=_RECORDED_S, why=states)


def test_the_service_executes_a_run_when_the_server_is_away(tmp_path: Path) -> None:
    environment = {**os.environ, "PREFECT_API_URL": "http://127.0.0.1:9/api"}
    with service(tmp_path, "--rate", "0", environment=environment) as running:
        workflow = running.register()
        running.save(workflow, DOUBLED)
        run = running.run(workflow)
        assert run["counts"]["outcome"]["passed"] == 1
    assert "Prefect's server does not answer" in (tmp_path / "service.log").read_text()
