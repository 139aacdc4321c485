"""Flow runs whose end on Prefect's server nothing but the command can tell."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect import flow, runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Completed, Running

from evalcore.pipeline.session import ExecuteOptions
from evalcore.prefect import runner, stopped
from evalcore.prefect.attended import AttendedFlow
from evalcore.prefect.execution import FlowExecution
from evalcore.prefect.flows import evaluate
from evalcore.prefect.stopped import unfinished_task_runs
from evalcore.prefect.tasks import execute_shard
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from tests.support.prefect_server import PrefectServer
from tests.support.worker_runs import plan_shared, write_suite

pytestmark = [pytest.mark.prefect, pytest.mark.xdist_group("prefect")]


@pytest.fixture
def run(tmp_path: Path, prefect: PrefectServer) -> StoredRun:
    """A run of which nothing has been executed."""
    return plan_shared(write_suite(tmp_path, items=2, sleep_s=0), LocalStore(tmp_path / "store"))


def begin(client: SyncPrefectClient, state: State[Any]) -> UUID:
    """Return a new task run of this flow run, which the server knows in this state."""
    flow_run = UUID(str(runtime.flow_run.id))
    task_run: TaskRun = client.create_task_run(
        execute_shard, flow_run, dynamic_key=str(uuid4()), state=state
    )
    return task_run.id


def test_unfinished_task_runs_are_read_to_the_last_page(
    prefect: PrefectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopped, "_PAGE", 2)
    found: list[tuple[set[UUID], list[UUID]]] = []

    @flow(name="pages", persist_result=False)
    def pages() -> None:
        with get_client(sync_client=True) as client:
            begun = {begin(client, Running()) for _ in range(5)}
            begin(client, Completed())
            unfinished = unfinished_task_runs(client, UUID(str(runtime.flow_run.id)))
            found.append((begun, [each.id for each in unfinished]))

    pages()
    ((begun, unfinished),) = found
    assert len(unfinished) == len(begun)
    assert set(unfinished) == begun


def test_an_interrupted_command_ends_the_flow_run_of_a_flow_that_does_not_return(
    run: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_NOTE_STOP_S", 0.0)
    monkeypatch.setattr(runner, "_TELL_STOP_S", 100.0)
    execution = FlowExecution(run, ExecuteOptions())
    with get_client(sync_client=True) as client:
        execution.flow_run = client.create_flow_run(evaluate, state=Running()).id
        task_run = client.create_task_run(
            execute_shard, execution.flow_run, dynamic_key="0", state=Running()
        )
        returns = threading.Event()
        attended = AttendedFlow(returns.wait, lambda: True)
        attended.start()
        runner._stop(run, execution, attended)
        flow_run = client.read_flow_run(execution.flow_run)
        ended = client.read_task_run(task_run.id)
    returns.set()
    assert flow_run.state is not None
    assert flow_run.state.is_cancelled()
    assert run.run_id in str(flow_run.state.message)
    assert ended.state_name == "Cancelled"
