"""Instant suites on several cores: the same rows and reports, and what ends a fork ends the run."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import StoreError, WorkersFailedError
from evalcore.execution.finished_counts import FinishedCounts, RunningCounts
from evalcore.execution.inline_shards import Rest
from evalcore.execution.open_shards import OpenShard
from evalcore.execution.row import ItemEnd
from evalcore.execution.stored_shards import StoredShards
from evalcore.isolation import forking
from evalcore.pipeline import forked_execution, local_processes
from evalcore.pipeline import plan as planning
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import load, plan_run
from evalcore.pipeline.run_calls import ExecuteOptions
from evalcore.planning.shards import MAX_SHARDS
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun

CASES = 120
BEGIN = "evalcore.execution.stored_shards.StoredShards.begin_given"


def write_suite(folder: Path, **more: Any) -> Path:
    """Write a suite of given outputs, of which every seventh fails."""
    path = folder / "cases.jsonl"
    with path.open("w") as file:
        for number in range(CASES):
            assertions = [
                {"type": "contains", "value": f"order-{number}"},
                {"type": "regex", "value": r"\d+$" if number % 7 else "^never"},
            ]
            output = {"output": f"this is order-{number}"}
            case = {"id": f"case-{number}", "input": "x", "fixtures": output}
            file.write(json.dumps({**case, "assertions": assertions, **more}) + "\n")
    return path


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few items be worth a fork, in shards of ten."""
    monkeypatch.setattr(planning, "_MIN_LOCAL_SHARD_ITEMS", 10)
    monkeypatch.setattr(planning, "shard_size", lambda *_, **__: 10)
    monkeypatch.setattr(forked_execution, "WORTH_S", 0.0)
    monkeypatch.setattr(forked_execution, "_SAMPLE_S", 0.0)
    monkeypatch.setattr(forked_execution, "can_fork", lambda: True)


def planned(folder: Path, name: str = "store") -> StoredRun:
    """Return a new run of the suite."""
    suite = load(write_suite(folder))
    return plan_run(suite, LocalStore(folder / name), now=datetime.now(UTC))


def reported(run: StoredRun, options: ExecuteOptions) -> dict[str, Any]:
    """Execute and decide the run; return its report without what may differ."""
    receipts = execute_run(run, options)
    with finish_run(run, receipts, now=datetime.now(UTC)) as view:
        report: dict[str, Any] = json.loads(view.json())
    return {key: value for key, value in report.items() if key not in ("run", "summary")}


def executors(run: StoredRun) -> set[str]:
    """Return the processes that have executed shards of the run."""
    claims = (run.store.get(info.key).data for info in run.store.list(run.keys.claims_prefix))
    return {json.loads(claim)["process"] for claim in claims}


@pytest.mark.usefixtures("small_shards")
def test_two_processes_come_to_the_report_of_one(tmp_path: Path) -> None:
    alone, shared = planned(tmp_path, "alone"), planned(tmp_path, "shared")
    counted: list[FinishedCounts] = []
    own: list[ItemEnd] = []
    options = ExecuteOptions(processes=2, counted=counted.append, progress=own.append)

    assert reported(shared, options) == reported(alone, ExecuteOptions())
    assert len(executors(alone)) == 1
    assert sum(map(sum, counted)) + len(own) == CASES
    assert sum(counts.failed for counts in counted) + sum(
        item.outcome == "failed" for item in own
    ) == len(range(0, CASES, 7))


@pytest.mark.usefixtures("small_shards")
def test_shards_are_committed_by_threads_that_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What DuckDB has allocated in a thread goes back to the system when the thread ends."""
    threads: list[threading.Thread] = []
    commit = StoredShards.commit

    def noting(shards: StoredShards, shard: OpenShard) -> None:
        threads.append(threading.current_thread())
        commit(shards, shard)

    monkeypatch.setattr(StoredShards, "commit", noting)
    execute_run(planned(tmp_path), ExecuteOptions())
    assert len(threads) == CASES // 10
    assert 1 <= len(set(threads)) <= 2
    assert threading.main_thread() not in threads
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.usefixtures("small_shards")
def test_a_commit_that_fails_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit, begun = StoredShards.commit, []

    def failing(shards: StoredShards, shard: OpenShard) -> None:
        begun.append(shard.number)
        if shard.number == 3:
            raise StoreError("the disk is full")
        commit(shards, shard)

    monkeypatch.setattr(StoredShards, "commit", failing)
    run = planned(tmp_path)
    with pytest.raises(StoreError, match="the disk is full"):
        execute_run(run, ExecuteOptions())
    assert run.written_shards() == set(begun) - {3}
    assert len(begun) < CASES // 10


@pytest.mark.usefixtures("small_shards")
def test_an_interrupt_while_a_thread_starts_leaves_no_thread_that_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("commit-"):
            started.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute_run(planned(tmp_path), ExecuteOptions())

    (thread,) = started
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.usefixtures("small_shards")
def test_a_fork_takes_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = planned(tmp_path)
    parent = os.getpid()
    # The parent leaves all shards but its first to the fork.
    original = forked_execution._ShardQueue.__iter__

    def of_forks(queue: forked_execution._ShardQueue) -> Iterator[int]:
        return iter(()) if os.getpid() == parent else original(queue)

    monkeypatch.setattr(forked_execution._ShardQueue, "__iter__", of_forks)
    receipts = execute_run(run, ExecuteOptions(processes=2))

    assert len(executors(run)) == 2
    assert sorted(receipt.shard for receipt in receipts) == list(range(12))
    assert all(receipt.committed and receipt.items == 10 for receipt in receipts)


def in_forks(effect: Callable[[], None]) -> Callable[[Any, int], list[Any]]:
    """Return `StoredShards.begin` that has an effect in every process but this one."""
    from evalcore.execution.stored_shards import StoredShards

    parent, original = os.getpid(), StoredShards.begin

    def begin(work: StoredShards, shard: int) -> list[Any]:
        if os.getpid() != parent:
            effect()
        return original(work, shard)

    return begin


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose_the_store() -> None:
    raise StoreError("the disk is full")


def run_out_of_memory() -> None:
    raise MemoryError("no room")


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize(
    ("effect", "error", "message"),
    [
        (be_killed, WorkersFailedError, "ended with signal SIGKILL; go on with: evalcore run"),
        (lose_the_store, StoreError, "the disk is full"),
        (run_out_of_memory, MemoryError, "no room"),
    ],
)
def test_what_ends_a_fork_ends_the_run_which_can_be_resumed(
    effect: Callable[[], None],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = planned(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(BEGIN, in_forks(effect))
        patched.setattr(forked_execution, "run_instant", lambda *_: Rest())
        with pytest.raises(error, match=message):
            execute_run(run, ExecuteOptions(processes=2))

    assert len(run.written_shards()) < 12
    report = reported(run, ExecuteOptions())
    assert report["counts"]["planned"] == CASES


@pytest.mark.usefixtures("small_shards")
def test_a_signal_to_the_group_ends_no_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_terminated() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    run = planned(tmp_path)
    monkeypatch.setattr(BEGIN, in_forks(be_terminated))
    monkeypatch.setattr(forked_execution, "run_instant", lambda *_: Rest())

    assert len(execute_run(run, ExecuteOptions(processes=2))) == 11


@pytest.mark.usefixtures("small_shards")
def test_without_a_fork_the_process_executes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    run = planned(tmp_path)
    monkeypatch.setattr(os, "fork", refuse)

    assert len(execute_run(run, ExecuteOptions(processes=3))) == 12


@pytest.mark.usefixtures("small_shards")
def test_without_a_thread_the_process_commits_and_reads_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    run = planned(tmp_path)
    monkeypatch.setattr(threading.Thread, "start", refuse)

    assert len(execute_run(run, ExecuteOptions(processes=2))) == 12


@pytest.mark.usefixtures("small_shards")
def test_a_killed_fork_leaves_no_rows_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_killed_while_it_writes() -> None:
        Path(tempfile.mkdtemp(), "rows").write_bytes(b"rows")
        be_killed()

    run = planned(tmp_path)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(
        BEGIN,
        in_forks(be_killed_while_it_writes),
    )
    monkeypatch.setattr(forked_execution, "run_instant", lambda *_: Rest())
    with pytest.raises(WorkersFailedError):
        execute_run(run, ExecuteOptions(processes=2))

    assert not list(folder.iterdir())


@pytest.mark.usefixtures("small_shards")
def test_progress_that_cannot_be_shown_is_the_error_of_the_run(tmp_path: Path) -> None:
    def refuse(_: FinishedCounts) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    run = planned(tmp_path)
    with pytest.raises(BrokenPipeError):
        execute_run(run, ExecuteOptions(processes=2, counted=refuse))


def test_skipped_items_of_a_fork_are_counted_as_skipped(tmp_path: Path) -> None:
    path = write_suite(tmp_path, execution={"targets": ["a"]})
    path.with_suffix(".yaml").write_text(
        "targets: [{name: a, provider: echo}, {name: b, provider: echo}]\n"
        "execution: {targets: [a, b]}\n"
    )
    run = plan_run(load(path), LocalStore(tmp_path / "store"), now=datetime.now(UTC))
    counts = RunningCounts()
    execute_run(run, ExecuteOptions(progress=counts))

    assert counts.take() == FinishedCounts(passed=102, failed=18, skipped=CASES)


@pytest.mark.usefixtures("small_shards")
def test_a_closed_standard_output_hinders_no_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = planned(tmp_path)
    monkeypatch.setattr(sys, "stdout", None)

    assert len(execute_run(run, ExecuteOptions(processes=2))) == 12


def test_a_process_that_ignores_how_its_children_end_is_not_forked() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert not forking.can_fork()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_largest_plan_fits_into_the_smallest_pipe() -> None:
    queue = forked_execution._ShardQueue(range(1, MAX_SHARDS + 1))
    try:
        assert list(queue) == list(range(1, MAX_SHARDS + 1))
    finally:
        queue.close()
    assert forked_execution._NUMBER.size * MAX_SHARDS <= select.PIPE_BUF


class AwaitedFlag(forked_execution._StopFlag):
    """A flag that forks look at when it is set, or after a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._parent = os.getpid()

    def __bool__(self) -> bool:
        until = time.monotonic() + 60
        while os.getpid() != self._parent and not super().__bool__():
            if time.monotonic() > until:
                break
            time.sleep(0.001)
        return super().__bool__()


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("before_forks", [True, False])
def test_a_stopped_run_begins_no_shard_in_any_process(
    tmp_path: Path, before_forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forked_execution, "_StopFlag", AwaitedFlag)
    run = planned(tmp_path)
    answers = chain([before_forks], repeat(True))
    execute_run(run, ExecuteOptions(processes=2, stopped=lambda: next(answers)))

    # This process ends the shard that it is in.
    assert run.written_shards() == {0}


@pytest.mark.parametrize(
    ("more", "processes"),
    [
        ({}, 4),
        ({"assertions": [{"type": "llm-grader", "prompt": "Is it?"}]}, 1),
        ({"workspace": {"template": "."}}, 1),
    ],
    ids=["given-outputs", "judged", "in-workspaces"],
)
def test_only_suites_that_wait_for_nothing_have_several_processes(
    more: dict[str, Any], processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_processes, "process_limit", lambda: 4)
    suite = load(write_suite(tmp_path, **more))

    assert local_processes.local_processes(suite) == processes


@pytest.mark.parametrize(
    ("quota", "memory", "processes"),
    [("max 100000", 64 << 30, 8), ("150000 100000", 64 << 30, 2), ("max 100000", 1 << 30, 2)],
    ids=["the-most", "cores-of-a-container", "memory-of-a-container"],
)
def test_a_container_has_no_more_processes_than_it_may_use(
    quota: str, memory: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.setattr(forking, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(forking, "total_memory", lambda: memory)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))

    assert forking.process_limit() == processes
