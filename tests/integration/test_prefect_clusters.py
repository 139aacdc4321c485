"""Shards as tasks of a cluster: the same loop over threads, and real clusters of Dask and Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect import Task, flow, task
from prefect.client.orchestration import SyncPrefectClient
from prefect.futures import PrefectConcurrentFuture, PrefectFuture

from evalcore.errors import (
    NotAllowedError,
    StalledError,
    StoreError,
    UsageError,
    WorkersFailedError,
)
from evalcore.model.run import State
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.settings import read_settings
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, list_runs
from evalcore.trust.imports import ImportPolicy
from flows import clusters
from flows.cluster_tasks import run_on_cluster, wait_until_left
from flows.clusters import ShardCluster, _reached
from flows.evaluate import evaluate
from flows.execution import FlowExecution
from flows.publish import RunProgress
from flows.runner import PrefectRunner
from flows.runner_choice import RunnerChoice, RunnerKind
from flows.shard_workers import own_environment
from flows.task_calls import run_called_task, task_call
from flows.task_run_ends import TaskRunEnds
from tests.support.prefect_runs import flow_run_of, stored_report
from tests.support.prefect_server import PrefectServer
from tests.support.reports import stable_report
from tests.support.shell import environment, evalcore
from tests.support.worker_runs import (
    calls,
    finished_report,
    pause,
    plan_shared,
    undisturbed_report,
    write_suite,
)

# A busy machine takes more than the default of 60 s to start a worker of Ray.
PATIENT_S = "600"
PILOT_ITEMS = 32
PROGRAM = (sys.executable, "-c", "from evalcore.cli.main import main; main()")

pytestmark = [pytest.mark.prefect, pytest.mark.slow, pytest.mark.xdist_group("prefect")]


# The loop, over threads of this process in place of a cluster


class ThreadCluster(ShardCluster):
    """Threads of this process that know no more than a process of a cluster does."""

    slots = 2

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    def _submit(self, name: str, task_run_id: UUID, call: dict[str, Any]) -> PrefectFuture[Any]:
        # The settings of a test belong to a context.
        called = partial(copy_context().run, run_called_task, **call)
        return PrefectConcurrentFuture(task_run_id, self._threads.submit(called))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect: PrefectServer) -> StoredRun:
    monkeypatch.chdir(tmp_path)
    suite = write_suite(tmp_path, items=60, sleep_s=0.01)
    return plan_shared(suite, LocalStore(tmp_path / "store"))


class LostCluster(ThreadCluster):
    """A cluster whose scheduler is gone: Dask cancels the futures of its tasks."""

    def submit(self, task: Task[..., Any], parameters: Mapping[str, Any]) -> PrefectFuture[Any]:
        future: Future[Any] = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return PrefectConcurrentFuture(uuid4(), future)


class EmptyCluster(ThreadCluster):
    """A cluster without workers."""

    slots = 0

    def submit(self, task: Task[..., Any], parameters: Mapping[str, Any]) -> PrefectFuture[Any]:
        return PrefectConcurrentFuture(uuid4(), Future())


def clustered(
    run: StoredRun,
    shards: Sequence[int],
    options: ExecuteOptions,
    cluster: type[ThreadCluster] = ThreadCluster,
) -> None:
    """Execute shards in a flow run, in two threads."""

    @flow(name="clustered", persist_result=False)
    def executes() -> None:
        execution = FlowExecution(run, options)
        with ThreadPoolExecutor(2) as threads:
            progress = RunProgress("shared", execution.plan.items)
            run_on_cluster(cluster(threads), TaskRunEnds(run), execution, shards, progress)
            wait_until_left(run)
        execution.close()

    executes()


def test_shards_are_executed_by_their_number_alone(
    run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in own_environment(run, ImportPolicy(roots=(tmp_path,))).items():
        monkeypatch.setenv(name, text)
    committed: list[int] = []
    options = ExecuteOptions(committed=committed.append)
    clustered(run, (0,), options)
    settled = FlowExecution(run, options)
    settled.settle()
    clustered(run, settled.pending(), options)
    settled.close()
    assert committed == sorted(committed)
    report = stable_report(finished_report(run))
    assert report == undisturbed_report(tmp_path, LocalStore(tmp_path / "alone"))


def test_the_tasks_of_a_thread_share_one_client(
    prefect: PrefectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    make_client = SyncPrefectClient.__init__

    def counted(client: SyncPrefectClient, *args: Any, **kwargs: Any) -> None:
        made.append(client)
        make_client(client, *args, **kwargs)

    @task(persist_result=False)
    def doubled(number: int) -> int:
        return 2 * number

    @flow(name="calls", persist_result=False)
    def calls_of(numbers: Sequence[int]) -> list[Mapping[str, Any]]:
        return [task_call(doubled, {"number": number})[1] for number in numbers]

    submitted = calls_of([1, 2, 3])
    monkeypatch.setattr(SyncPrefectClient, "__init__", counted)

    def run_all() -> list[int]:
        return [run_called_task(**call).result() for call in submitted]

    assert copy_context().run(run_all) == [2, 4, 6]
    assert len(made) == 1


def test_a_worker_that_may_not_execute_the_run_ends_it(
    run: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_STORE", "elsewhere")
    with pytest.raises(NotAllowedError, match="EVALCORE_ALLOW_STORES"):
        clustered(run, (0,), ExecuteOptions())
    assert not run.written_shards()


def test_a_run_whose_scheduler_is_gone_says_so_and_how_to_go_on(run: StoredRun) -> None:
    with pytest.raises(WorkersFailedError, match=f"scheduler is gone.*--resume {run.run_id}"):
        clustered(run, (0,), ExecuteOptions(), LostCluster)


def test_a_run_on_a_cluster_without_workers_says_what_is_missing(run: StoredRun) -> None:
    impatient = replace(ExecuteOptions().settings, stall_s=0.5, lease_s=0.1)
    with pytest.raises(StalledError, match="the cluster has no workers"):
        clustered(run, (0,), ExecuteOptions(settings=impatient), EmptyCluster)


def test_a_cancelled_run_begins_no_other_shard(
    run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALCORE_STORE", str(tmp_path / "store"))
    run.request_cancel()
    clustered(run, (0,), ExecuteOptions())
    assert not run.written_shards()


def test_a_parameter_names_no_cluster_that_the_worker_does_not_allow(
    prefect: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    state: Any = evaluate(
        suite="a.eval.yaml", runner="dask=tcp://elsewhere:8786", return_state=True
    )
    assert state.name == "NotAllowed"
    assert "EVALCORE_ALLOW_RUNNERS" in state.message


# Clusters


def wait_for_calls(folder: Path, number: int) -> list[int]:
    """Return the processes that have made so many calls, together, once they have."""
    deadline = time.monotonic() + 300
    while calls(folder).total() < number:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [int(path.name) for path in (folder / "calls").iterdir()]


def busy_process(folder: Path) -> int:
    """Return a process that makes calls now, once it has made another one."""

    def sizes() -> dict[int, int]:
        return {int(path.name): path.stat().st_size for path in (folder / "calls").iterdir()}

    before, deadline = sizes(), time.monotonic() + 300
    while not (grown := [pid for pid, size in sizes().items() if size > before.get(pid, 0)]):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return grown[0]


# Ray, which is ten times as large and takes a minute to start on a busy machine, is for the nights.
@pytest.mark.multiprocess
@pytest.mark.parametrize("engine", ["dask", pytest.param("ray", marks=pytest.mark.extended)])
def test_a_killed_worker_of_a_cluster_loses_nothing_and_doubles_nothing(
    engine: str, prefect: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(f"prefect_{engine}")
    monkeypatch.chdir(tmp_path)
    # A cluster of the run's own is not the one that this names.
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("EVALCORE_STALL_S", PATIENT_S)
    suite = write_suite(tmp_path, items=400, sleep_s=0.1)
    run = plan_shared(suite, LocalStore(tmp_path / "store"))
    killed: list[int] = []

    def kill_one(committed: int) -> None:
        if not killed:
            killed.append(next(pid for pid in wait_for_calls(tmp_path, 1) if pid != os.getpid()))
            os.kill(killed[0], signal.SIGKILL)

    options = ExecuteOptions(
        imports=ImportPolicy(roots=(tmp_path,)),
        settings=read_settings(os.environ, tmp_path),
        committed=kill_one,
    )
    PrefectRunner().start(run, options, engine, 2)
    assert killed
    assert run.manifest().decision == "fail"  # a seventh of the cases
    written = stable_report(stored_report(run))
    assert written == undisturbed_report(tmp_path, LocalStore(tmp_path / "alone"))
    # What the process had not told Prefect's server when it was killed the flow run tells.
    assert {task.state_name for task in flow_run_of(run).tasks} == {"Completed"}


@pytest.mark.extended
@pytest.mark.multiprocess
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_the_shards_of_a_worker_that_hangs_are_executed_by_others(
    engine: str, prefect: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(f"prefect_{engine}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALCORE_LEASE_S", "1")
    monkeypatch.setenv("EVALCORE_STALL_S", PATIENT_S)
    suite = write_suite(tmp_path, items=400, sleep_s=0.1)
    run = plan_shared(suite, LocalStore(tmp_path / "store"))
    stopped: list[int] = []
    warnings: list[str] = []

    def stop_a_worker(committed: int) -> None:
        # Until the pilot is committed no process has another shard.
        if committed > PILOT_ITEMS and not stopped:
            stopped.append(busy_process(tmp_path))
            pause(tmp_path / "store", stopped[0])

    options = ExecuteOptions(
        imports=ImportPolicy(roots=(tmp_path,)),
        settings=read_settings(os.environ, tmp_path),
        committed=stop_a_worker,
        warn=warnings.append,
    )
    PrefectRunner().start(run, options, engine, 2)
    assert stopped
    assert any("no sign of life for 2 s" in warning for warning in warnings)
    written = stable_report(stored_report(run))
    assert written == undisturbed_report(tmp_path, LocalStore(tmp_path / "alone"))


def stop_first_worker_of_ray(started: subprocess.Popen[str]) -> int:
    """Stop the first worker that a process's cluster of Ray starts, at once; return its id."""
    while started.poll() is None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                program = path.read_text().split("\0")[:4]
                pid = int(path.parent.name)
                is_worker = any(each.endswith("default_worker.py") for each in program)
                if is_worker and started.pid in ancestors(pid):
                    os.kill(pid, signal.SIGSTOP)
                    return pid
        time.sleep(0.002)
    raise AssertionError(started.communicate()[0])


def ancestors(pid: int) -> list[int]:
    """Return the parents of a process, up to the first one."""
    found: list[int] = []
    while pid > 1:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        pid = int(stat.rpartition(")")[2].split()[1])
        found.append(pid)
    return found


@pytest.mark.extended
@pytest.mark.multiprocess
def test_a_worker_of_ray_that_hangs_when_it_starts_does_not_hold_up_the_run(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    pytest.importorskip("prefect_ray")
    suite = write_suite(tmp_path, items=100, sleep_s=0.1)
    process = subprocess.Popen(
        [*PROGRAM, "run", str(suite), "--prefect", "--runner", "ray", "--workers", "2"],
        cwd=tmp_path,
        env=environment() | prefect.environment | {"EVALCORE_STALL_S": PATIENT_S},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    stopped = stop_first_worker_of_ray(process)
    try:
        output, _ = process.communicate(timeout=240)
    finally:
        process.kill()
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGKILL)
    assert process.returncode == 1, output  # a seventh of the cases fails
    assert "100 items" in output


def raylet_of(parent: int) -> int:
    """Return the process that is the node of a process's own cluster of Ray."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            is_raylet = path.read_text().split("\0")[0].endswith("/raylet")
            if is_raylet and parent in ancestors(int(path.parent.name)):
                return int(path.parent.name)
    raise AssertionError("there is no raylet")


def lets_make_namespaces() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.extended
@pytest.mark.multiprocess
def test_a_raylet_that_is_killed_ends_a_run_below_process_1_with_a_message(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    pytest.importorskip("prefect_ray")
    if not lets_make_namespaces():
        pytest.skip("needs a namespace of process ids")
    suite = write_suite(tmp_path, items=300, sleep_s=0.1)
    store = tmp_path / "store"
    # As in a container: Ray takes a program whose parent is process 1 for one of its own.
    command = [
        *("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"),
        *("sh", "-c", '"$@"; exit $?', "sh", *PROGRAM, "run", str(suite)),
        *("--store", str(store), "--prefect", "--runner", "ray", "--workers", "2"),
    ]
    log = tmp_path / "output.txt"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment() | prefect.environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 240
        while not list(store.rglob("*.parquet")):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        os.kill(raylet_of(process.pid), signal.SIGKILL)
        process.wait(timeout=120)
    finally:
        process.kill()
    written = log.read_text()
    assert process.returncode == 4, written
    (run,) = list_runs(LocalStore(store))
    assert f"go on with: evalcore run --resume {run.id}" in written
    assert run.state is State.CANCELLED
    resumed = evalcore("run", "--resume", run.id, "--json", store=store, cwd=tmp_path)
    whole = undisturbed_report(tmp_path, LocalStore(tmp_path / "alone"))
    assert stable_report(resumed.out) == whole


def test_a_cluster_of_ray_that_does_not_start_is_one_message_and_no_mistake(
    tmp_path: Path,
) -> None:
    run = plan_shared(write_suite(tmp_path), LocalStore(tmp_path / "store"))
    told = r"runner 'ray' does not start: The current node timed .*; go on with: evalcore run --r"
    with (
        pytest.raises(WorkersFailedError, match=told),
        _reached(RunnerChoice(RunnerKind.RAY), run),
    ):
        raise Exception("The current node timed out during startup.")


def test_a_cluster_that_is_not_at_its_address_is_a_mistake_of_the_command(tmp_path: Path) -> None:
    run = plan_shared(write_suite(tmp_path), LocalStore(tmp_path / "store"))
    with (
        pytest.raises(UsageError, match=r"no scheduler answers for the runner 'ray=ray://nowhere"),
        _reached(RunnerChoice(RunnerKind.RAY, "ray://nowhere:1"), run),
    ):
        raise Exception("no route")


def test_a_refusal_is_printed_without_what_prefects_pages_need(
    prefect: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("prefect_dask")
    monkeypatch.setattr(clusters, "_CONNECT_S", 0.2)
    run = plan_shared(write_suite(tmp_path), LocalStore(tmp_path / "store"))
    with pytest.raises(UsageError) as refused:
        PrefectRunner().start(run, ExecuteOptions(), "dask=tcp://127.0.0.1:1")
    message = (
        "Prefect ended the run as Refused: no scheduler answers for the runner 'dask=tcp://127"
    )
    assert str(refused.value).startswith(message)


@pytest.mark.extended
@pytest.mark.multiprocess
def test_a_run_on_dask_that_is_cancelled_goes_on_where_it_was(
    prefect: PrefectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("prefect_dask")
    monkeypatch.chdir(tmp_path)
    suite = write_suite(tmp_path, items=400, sleep_s=0.1)
    run = plan_shared(suite, LocalStore(tmp_path / "store"))
    imports = ImportPolicy(roots=(tmp_path,))
    cancel = ExecuteOptions(imports=imports, committed=lambda _: run.request_cancel())
    with pytest.raises(StoreError, match=f"--resume {run.run_id}"):
        PrefectRunner().start(run, cancel, "dask", 2)
    assert run.manifest().state == "cancelled"
    before = run.written_shards()
    assert before
    PrefectRunner().start(run, ExecuteOptions(imports=imports), "dask", 2)
    assert run.manifest().decision == "fail"
    assert run.written_shards() > before


@pytest.mark.multiprocess
def test_an_interrupt_that_reaches_the_workers_of_dask_too_has_one_message(
    prefect: PrefectServer, tmp_path: Path
) -> None:
    pytest.importorskip("prefect_dask")
    suite = write_suite(tmp_path, items=400, sleep_s=0.1)
    process = subprocess.Popen(
        [*PROGRAM, "run", str(suite), "--prefect", "--runner", "dask", "--workers", "2"],
        cwd=tmp_path,
        env=environment() | prefect.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    wait_for_calls(tmp_path, 20)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 4
    assert "evalcore run --resume" in output
    assert "Traceback" not in output
