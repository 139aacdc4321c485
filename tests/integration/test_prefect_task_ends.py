"""Runs whose end on Prefect's server nothing but the flow run, or the command, can tell."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect import flow, runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import AwaitingRetry, Completed, Running

from evalcore.errors import WorkersFailedError
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from flows import runner, task_run_ends
from flows.attended import AttendedFlow
from flows.evaluate import evaluate
from flows.execution import FlowExecution
from flows.task_run_ends import TaskRunEnds, unfinished_task_runs
from flows.tasks import execute_assigned_shard
from tests.support.prefect_server import PrefectServer
from tests.support.worker_runs import plan_shared, write_suite

pytestmark = [pytest.mark.prefect, pytest.mark.xdist_group("prefect")]

# How a task run came about, and what the flow run has noted of it.
Prepare = Callable[[SyncPrefectClient, TaskRunEnds], UUID]


@pytest.fixture
def run(tmp_path: Path, prefect: PrefectServer) -> StoredRun:
    """A run of which nothing has been executed."""
    return plan_shared(write_suite(tmp_path, items=2, sleep_s=0), LocalStore(tmp_path / "store"))


def begin(client: SyncPrefectClient, state: State[Any]) -> UUID:
    """Return a new task run of this flow run, which the server knows in this state."""
    flow_run = UUID(str(runtime.flow_run.id))
    task_run: TaskRun = client.create_task_run(
        execute_assigned_shard, flow_run, dynamic_key=str(uuid4()), state=state
    )
    return task_run.id


def settle(run: StoredRun, prepare: Prepare, *, quiet_s: float = 0.0) -> State[Any]:
    """Settle a task run in a flow run of its own; return the state that the server has then."""
    states: list[State[Any] | None] = []

    @flow(name="settles", persist_result=False)
    def settles() -> None:
        ends = TaskRunEnds(run)
        with get_client(sync_client=True) as client:
            task_run = prepare(client, ends)
            ends.settle(quiet_s=quiet_s)
            states.append(client.read_task_run(task_run).state)

    settles()
    (state,) = states
    assert state is not None
    return state


def test_a_task_run_ends_as_its_worker_said_though_it_did_not_tell_the_server(
    run: StoredRun,
) -> None:
    def prepare(client: SyncPrefectClient, ends: TaskRunEnds) -> UUID:
        task_run = begin(client, Running())
        ends.note_submitted(task_run, 0)
        ends.note_state(task_run, Completed(name="CaseFailed"))
        return task_run

    state = settle(run, prepare)
    assert state.is_completed()
    assert state.name == "CaseFailed"
    assert state.message == "told by the flow run: its worker had not told Prefect's server"


@pytest.mark.parametrize("state", [Running(), AwaitingRetry()], ids=["running", "awaits-retry"])
def test_a_task_run_that_the_cluster_gave_up_has_crashed(run: StoredRun, state: State[Any]) -> None:
    def prepare(client: SyncPrefectClient, ends: TaskRunEnds) -> UUID:
        task_run = begin(client, state)
        ends.note_submitted(task_run, 0)
        ends.note_failure(task_run, WorkersFailedError(run.run_id, "killed too often"))
        return task_run

    ended = settle(run, prepare)
    assert ended.is_crashed()
    assert str(ended.message).startswith("WorkersFailedError: ")
    assert str(ended.message).endswith("; no result")


def test_a_lost_task_run_says_that_another_one_has_executed_its_shard(
    run: StoredRun, tmp_path: Path
) -> None:
    execute_run(run, ExecuteOptions(imports=ImportPolicy(roots=(tmp_path,))))

    def prepare(client: SyncPrefectClient, ends: TaskRunEnds) -> UUID:
        task_run = begin(client, Running())
        ends.note_submitted(task_run, 0)
        return task_run

    ended = settle(run, prepare)
    assert ended.is_crashed()
    assert ended.message == "its worker was lost; another task run has executed its shard"


def test_what_the_server_is_about_to_record_is_waited_for(
    run: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def recorded_after_a_look(client: SyncPrefectClient, flow_run: UUID) -> list[TaskRun]:
        unfinished = unfinished_task_runs(client, flow_run)
        looks.append(len(unfinished))
        for task_run in unfinished:
            client.set_task_run_state(task_run.id, Completed(message="recorded"), force=True)
        return unfinished

    def prepare(client: SyncPrefectClient, ends: TaskRunEnds) -> UUID:
        task_run = begin(client, Running())
        ends.note_submitted(task_run, 0)
        ends.note_state(task_run, Completed())
        monkeypatch.setattr(task_run_ends, "unfinished_task_runs", recorded_after_a_look)
        return task_run

    assert settle(run, prepare, quiet_s=600.0).message == "recorded"
    assert looks == [1, 0]


def test_other_task_runs_of_the_flow_run_are_left_alone(run: StoredRun) -> None:
    def prepare(client: SyncPrefectClient, ends: TaskRunEnds) -> UUID:
        ends.note_submitted(begin(client, Running()), 0)
        return begin(client, Running())

    assert settle(run, prepare).is_running()


def test_unfinished_task_runs_are_read_to_the_last_page(
    prefect: PrefectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_run_ends, "_PAGE", 2)
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
            execute_assigned_shard, execution.flow_run, dynamic_key="0", state=Running()
        )
        returns = threading.Event()
        flow = AttendedFlow(returns.wait, lambda: True)
        flow.start()
        runner._stop(run, execution, flow)
        flow_run = client.read_flow_run(execution.flow_run)
        ended = client.read_task_run(task_run.id)
    returns.set()
    assert flow_run.state is not None
    assert flow_run.state.is_cancelled()
    assert run.run_id in str(flow_run.state.message)
    assert ended.state_name == "Cancelled"
