"""Lanes as flow runs of a work pool: a real server, a real worker, processes that die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterName
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelling

from evalcore.pipeline.lane import execute_lane
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.storage.address import open_store
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from tests.support.otlp_receiver import Receiver, otlp_receiver
from tests.support.prefect_api import children, trigger
from tests.support.prefect_project import ENVIRONMENT, LEASE_S, NIGHT, Project, deploy
from tests.support.prefect_runs import only_run, run_flow, stored_report
from tests.support.reports import stable_report
from tests.support.shell import evalcore
from tests.support.worker_runs import calls, open_gate, undisturbed_report, write_suite

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
    pytest.mark.xdist_group("prefect"),
]

ITEMS = 200
_PATIENCE_S = 300.0


def wait_until(happened: Callable[[], bool], project: Project) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, project.log
        time.sleep(0.1)


def lanes_of(run: StoredRun) -> list[FlowRun]:
    named = FlowRunFilter(name=FlowRunFilterName(like_=f"{run.run_id} lane"))
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(flow_run_filter=named)


def ended(flow_runs: list[FlowRun]) -> bool:
    return all(one.state is not None and one.state.is_final() for one in flow_runs)


def pids(project: Project) -> set[int]:
    """Return the processes that have called something."""
    return {int(path.name) for path in (project.folder / "calls").iterdir()}


@pytest.fixture(scope="module")
def receiver(deployed: Project) -> Iterator[Receiver]:
    """Who the deployments' flow runs send their spans to."""
    with otlp_receiver() as receiving:
        to = f"OTEL_EXPORTER_OTLP_ENDPOINT={receiving.url}"
        deploy(deployed.folder, *NIGHT, *ENVIRONMENT, "--env", to)
        yield receiving
        deploy(deployed.folder, *NIGHT, *ENVIRONMENT)


@pytest.fixture(scope="module")
def cancelled(working: Project, receiver: Receiver) -> StoredRun:
    """A run in two lanes of a night that was cancelled in Prefect when something was committed."""
    write_suite(working.folder, items=ITEMS, sleep_s=0.15, held=True)
    store = working.folder / "lanes"
    night = trigger("nightly/nightly", suites=["shared.eval.yaml"], lanes=2, store=str(store))
    wait_until(lambda: any(store.glob("runs/*/*/results/*.parquet")), working)
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(night, Cancelling())
    # Then its process has said all that it has to say, even that the run is cancelled.
    wait_until(lambda: ended(children(night)), working)
    open_gate(working.folder)
    return only_run(store)


@pytest.mark.extended
def test_a_cancelled_night_cancels_its_runs_and_ends_their_lanes(
    cancelled: StoredRun, working: Project
) -> None:
    assert cancelled.manifest().state == "cancelled", working.log
    wait_until(
        lambda: all(one.state and one.state.is_final() for one in lanes_of(cancelled)), working
    )
    lanes = lanes_of(cancelled)
    assert [str(one.state_name) for one in lanes] == ["Cancelled"] * 2, working.log
    assert 0 < len(cancelled.written_shards()) < cancelled.manifest().plan.shards


@pytest.mark.extended
def test_a_resumed_run_in_lanes_has_the_report_of_one_process_though_a_lane_is_killed(
    cancelled: StoredRun, working: Project, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, before = working.folder, pids(working)
    written = cancelled.written_shards()

    def kill_the_first() -> None:
        wait_until(lambda: bool(pids(working) - before), working)
        os.kill(min(pids(working) - before), signal.SIGKILL)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    monkeypatch.setenv("EVALCORE_LEASE_S", str(LEASE_S))
    monkeypatch.setenv("EVALCORE_ALLOW_STORES", str(folder))
    monkeypatch.setenv("EVALCORE_ALLOW_IMPORTS", "shared_target")
    given = {"resume": cancelled.run_id, "lanes": 2, "store": cancelled.store.url}
    watching = ("runs", "watch", cancelled.run_id, "--json")
    with contextlib.chdir(folder):
        seen = run_flow(suite="shared.eval.yaml", **given)
    killer.join()
    watched = evalcore(*watching, store=folder / "lanes")
    assert watched.code == 1
    assert json.loads(watched.out.splitlines()[-1])["items"]["done"] == ITEMS
    # Both lanes, and one for the killed one: none for those of the night.
    assert len(pids(working) - before) in {2, 3}
    assert seen.state.is_completed() or seen.state.name == "GateFailed", working.log
    assert cancelled.manifest().state == "completed"
    assert written < cancelled.written_shards()
    assert len(calls(folder)) == ITEMS
    report = stored_report(cancelled)
    assert stable_report(report) == undisturbed_report(folder, open_store(str(folder / "whole")))
    assert int(cancelled.manifest().execution["reexecuted"]) > 0
    # The lanes of both flow runs have written into one trace.
    assert len({span.trace_id for span in receiver.spans}) == 1
    told = {span.attributes["evalcore.item"] for span in receiver.named("item ")}
    assert told == set(range(ITEMS))


def test_lanes_that_were_asked_for_without_a_deployment_are_refused(
    deployed: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_suite(tmp_path, items=3)
    monkeypatch.setattr("flows.lanes.LANE_DEPLOYMENT", "evaluate-lane/nowhere")
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("EVALCORE_ALLOW_IMPORTS", "shared_target")
    with contextlib.chdir(tmp_path):
        seen = run_flow(suite="shared.eval.yaml", lanes=2)
    assert seen.state.is_failed()
    assert "lanes need a deployment 'evaluate-lane/nowhere'" in str(seen.state.message)
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(seen.flow_run.id).state is not None


def test_a_pilot_or_history_tells_whether_lanes_are_worth_it(
    deployed: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_suite(tmp_path, items=150, sleep_s=0.05)
    seen: list[tuple[int, int]] = []

    def lanes_here(run: StoredRun, lanes: int, _: object, **_given: object) -> None:
        seen.append((lanes, len(run.written_shards())))
        execute_lane(run, ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,))), lane="here")

    monkeypatch.setattr("flows.evaluate.has_lane_deployment", lambda: True)
    monkeypatch.setattr("flows.evaluate.execute_in_lanes", lanes_here)
    monkeypatch.setattr("flows.lanes._TASK_ITEMS", 100)
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("EVALCORE_ALLOW_IMPORTS", "shared_target")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shared_target", raising=False)
    given = {"suite": "shared.eval.yaml"}
    with contextlib.chdir(tmp_path):
        for at_least_s in (0.01, 60.0):  # what is left of a second of work is no minute
            monkeypatch.setattr("flows.lanes._TASK_S", at_least_s)
            assert run_flow(**given).flow_run.state_name == "GateFailed"
    assert seen == [(2, 1)]  # the pilot was committed; history needed none
