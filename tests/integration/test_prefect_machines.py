"""Runs with machines: ranges of shards as flow runs of `evaluate-shards`, executed by a worker."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from uuid import UUID

import orjson
import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolUpdate
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterName,
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateName,
)
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelled, Failed

from evalcore.formats.registry import load_suite
from evalcore.pipeline.session import ExecuteOptions
from evalcore.prefect import machines
from evalcore.prefect.flows import FlowExecution, brought_along, evaluate
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from tests.support.prefect_project import Project, deploy
from tests.support.prefect_runs import planned as plan_suite
from tests.support.prefect_runs import stored_report
from tests.support.prefect_server import PrefectServer
from tests.support.processes import until

pytestmark = [
    pytest.mark.prefect,
    pytest.mark.slow,
    pytest.mark.multiprocess,
]

ITEMS = 16


def planned(folder: Path, command: str) -> StoredRun:
    """Plan a run whose items call a program, four at a time; each notes its number in `calls`."""
    noted = f'echo "$0" >> "{folder}/calls"; {command}; echo hello'
    target = {"name": "noting", "provider": "command", "command": ["sh", "-c", noted, "{prompt}"]}
    tests = [
        {
            "id": f"c{number}",
            "input": f"{number}",
            "assertions": [{"type": "contains", "value": "hello"}],
        }
        for number in range(ITEMS)
    ]
    suite = {"targets": [target], "execution": {"target": "noting", "workers": 4}, "tests": tests}
    (folder / "noting.eval.yaml").write_bytes(orjson.dumps(suite))
    return plan_suite(load_suite(folder / "noting.eval.yaml"), LocalStore(folder / "store"))


def execute(run: StoredRun) -> None:
    """Let a flow in this process coordinate the run with two machines."""
    execution = FlowExecution(run, ExecuteOptions(), machines=2)
    with brought_along(execution):
        evaluate(suite=run.definition.name, resume=run.run_id, return_state=True)


def children(*states: str) -> list[FlowRun]:
    """Return the flow runs of `evaluate-shards`, those in the states if any are named."""
    named = FlowRunFilterState(name=FlowRunFilterStateName(any_=list(states))) if states else None
    with get_client(sync_client=True) as client:
        return client.read_flow_runs(
            flow_run_filter=FlowRunFilter(state=named),
            deployment_filter=DeploymentFilter(name=DeploymentFilterName(any_=["evaluate-shards"])),
        )


def calls(folder: Path) -> Counter[str]:
    return Counter((folder / "calls").read_text().split())


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of two seconds' work, which are eight items here; the work pool is looked at often."""
    monkeypatch.setattr(machines, "RANGE_S", 2.0)
    monkeypatch.setattr(machines, "_LOOK_S", 0.2)


def test_machines_execute_ranges_of_a_run_and_its_coordinator_decides_it(
    prefect: PrefectServer, working: Project, tmp_path: Path
) -> None:
    deploy(working.folder)
    before = {each.id for each in children()}
    run = planned(tmp_path, "sleep 0.1")
    execute(run)
    ranges = [each for each in children() if each.id not in before]
    assert orjson.loads(stored_report(run))["counts"]["passed"] == ITEMS, working.log
    assert set(calls(tmp_path).values()) == {1}
    assert len(ranges) == ITEMS // 8
    shards = sorted(shard for each in ranges for shard in each.parameters["shards"])
    assert shards == list(range(ITEMS))


@contextlib.contextmanager
def paused_pool() -> Iterator[None]:
    """Let no worker take flow runs of the work pool."""
    with get_client(sync_client=True) as client:
        client.update_work_pool("evalcore", WorkPoolUpdate(is_paused=True))
        yield
        client.update_work_pool("evalcore", WorkPoolUpdate(is_paused=False))


def test_a_work_pool_that_nobody_serves_does_not_hold_the_run_up(
    prefect: PrefectServer, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(project.folder)
    monkeypatch.setattr(machines, "START_S", 1.0)
    with paused_pool():
        run = planned(tmp_path, "true")
        execute(run)
    assert orjson.loads(stored_report(run))["counts"]["passed"] == ITEMS
    assert set(calls(tmp_path).values()) == {1}
    mine = [each for each in children() if each.parameters["run"] == run.run_id]
    assert {each.state_name for each in mine} == {Cancelled().name}


def test_a_coordinator_whose_server_stays_away_executes_what_machines_had(
    prefect: PrefectServer, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(project.folder)

    def look(executor: machines.MachinesExecutor, _: SyncPrefectClient) -> None:
        if executor._ranges:
            raise ConnectionError("the server is away")

    monkeypatch.setattr(machines.MachinesExecutor, "_look_at_ranges", look)
    monkeypatch.setattr(machines, "START_S", 1.0)
    with paused_pool():
        run = planned(tmp_path, "true")
        execute(run)
    assert orjson.loads(stored_report(run))["counts"]["passed"] == ITEMS
    assert set(calls(tmp_path).values()) == {1}


def test_a_coordinator_executes_what_three_machines_could_not(
    prefect: PrefectServer, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(project.folder)
    monkeypatch.setattr(machines, "RANGE_S", 60.0)
    run = planned(tmp_path, "true")
    told: list[str] = []
    execution = FlowExecution(run, ExecuteOptions(warn=told.append), machines=2)
    failed: set[UUID] = set()

    def fail_ranges(client: SyncPrefectClient) -> bool:
        for each in children("Scheduled", "Late"):
            if each.parameters["run"] == run.run_id:
                client.set_flow_run_state(each.id, Failed(message="no disk"), force=True)
                failed.add(each.id)
        return ended.done()

    with (
        paused_pool(),
        get_client(sync_client=True) as client,
        brought_along(execution),
        ThreadPoolExecutor(1) as thread,
    ):
        ended = thread.submit(
            copy_context().run, evaluate, suite="x", resume=run.run_id, return_state=True
        )
        until(lambda: fail_ranges(client))
    assert len(failed) == 3
    assert any("has any result (the last one ended with: no disk)" in each for each in told)
    assert orjson.loads(stored_report(run))["counts"]["passed"] == ITEMS


@pytest.mark.extended
def test_an_item_that_ends_its_machine_twice_is_in_error_and_the_others_complete(
    prefect: PrefectServer, working: Project, tmp_path: Path
) -> None:
    deploy(working.folder)
    run = planned(tmp_path, '[ "$0" != 5 ] || kill -9 $PPID')
    execute(run)
    report = orjson.loads(stored_report(run))
    assert (report["counts"]["passed"], report["counts"]["error"]) == (ITEMS - 1, 1), working.log
    (broken,) = (case for case in report["cases"] if case["items"][0]["status"] == "error")
    assert broken["id"] == "c5"
    assert broken["items"][0]["error"]["kind"] == "process"
    assert calls(tmp_path)["5"] == 3
