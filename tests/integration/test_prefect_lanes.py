"""Lanes as flow runs of a work pool: a real server, a real worker, processes that die."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client

from evalcore.storage.address import open_store
from flows.lanes import LANE_DEPLOYMENT, Work, choose_lanes
from tests.integration.test_prefect_deployment import prefect_command
from tests.prefect_runs import run_flow, stored_report
from tests.prefect_server import PrefectServer
from tests.reports import stable_report
from tests.servers import running
from tests.worker_runs import calls, undisturbed_report, write_suite

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
    pytest.mark.xdist_group("prefect"),
]

ROOT = Path(__file__).resolve().parents[2]
POOL = "lanes-of-tests"


@pytest.mark.parametrize(
    ("items", "seconds", "wanted", "has_pool", "lanes"),
    [
        pytest.param(1_000, 600.0, 0, True, 0, id="few items"),
        pytest.param(50_000, 50.0, 0, True, 0, id="a minute of work"),
        pytest.param(2_000, 600.0, 0, False, 0, id="no work pool"),
        pytest.param(2_000, 100.0, 0, True, 2, id="more work"),
        pytest.param(100_000, 1_200.0, 0, True, 4, id="much work"),
        pytest.param(1_000_000, 1e6, 0, True, 8, id="very much work"),
        pytest.param(10, 1.0, 3, True, 3, id="asked for"),
    ],
)
def test_the_rule_chooses_between_shard_tasks_and_lanes(
    items: int, seconds: float, wanted: int, has_pool: bool, lanes: int
) -> None:
    assert choose_lanes(Work(items, seconds), wanted=wanted, has_pool=has_pool) == lanes


@pytest.fixture(scope="module")
def lane_worker(prefect: PrefectServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A work pool with a worker, and the deployment of lanes on it; gives the worker's log."""
    folder = tmp_path_factory.mktemp("lane-worker")
    prefect_command(prefect, "work-pool", "create", POOL, "--type", "process", cwd=ROOT)
    entry = ("deploy", "flows/lane.py:evaluate_lane", "--name", LANE_DEPLOYMENT.split("/")[1])
    prefect_command(prefect, *entry, "--pool", POOL, cwd=ROOT)
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL]
    more = {
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "EVALCORE_ALLOW_IMPORTS": "shared_target",
        "PYTHONPATH": str(folder),
    }
    with running(command, prefect.environment | more, folder / "worker.log"):
        yield folder


@contextlib.contextmanager
def in_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def test_a_run_in_lanes_has_the_report_of_one_process_though_a_lane_is_killed(
    prefect: PrefectServer, lane_worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lane_worker
    write_suite(folder, items=300, sleep_s=0.2)
    killed: list[int] = []

    import threading

    def kill_the_first() -> None:
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline and not killed:
            for path in (folder / "calls").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(path.name), signal.SIGKILL)
                    killed.append(int(path.name))
                    return
            time.sleep(0.1)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    monkeypatch.setenv("EVALCORE_LEASE_S", "2")
    with in_folder(folder):
        seen = run_flow(suite="shared.eval.yaml", lanes=2, store=str(folder / "store"))
    killer.join()
    assert killed
    log = (folder / "worker.log").read_text()
    assert seen.state.is_completed() or seen.state.name == "GateFailed", log
    from tests.prefect_runs import only_run

    run = only_run(folder / "store")
    assert run.manifest().state == "completed"
    (folder / "calls-of-lanes").mkdir()
    whole = undisturbed_report(folder, open_store(str(folder / "whole")))
    assert stable_report(stored_report(run)) == whole
    assert int(run.manifest().execution["reexecuted"]) > 0
    assert len(calls(folder)) == 300


def test_lanes_that_were_asked_for_without_a_deployment_are_refused(
    prefect: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_suite(tmp_path, items=3)
    monkeypatch.setattr("flows.lanes.LANE_DEPLOYMENT", "evaluate-lane/nowhere")
    with in_folder(tmp_path):
        seen = run_flow(suite="shared.eval.yaml", lanes=2, store=str(tmp_path / "store"))
    assert seen.state.is_failed()
    assert "lanes need a deployment 'evaluate-lane/nowhere'" in str(seen.state.message)
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(seen.flow_run.id).state is not None
