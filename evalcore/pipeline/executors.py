"""Where runs are executed: shards by executors, in this process or in child processes.

Whole runs are executed by orchestrators that are found by name and never imported (`Runner`).
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from enum import StrEnum
from typing import Final, NamedTuple, Protocol, cast

from evalcore.checks.registry import AWAITED
from evalcore.errors import EvalError
from evalcore.execution.limits import find_offered, most_processes
from evalcore.execution.rates import FIRST, ConcurrencyShare
from evalcore.execution.row import FinishedItem
from evalcore.execution.stopper import Stopper
from evalcore.execution.worker import OpenRun, ShardReceipt, Stopped
from evalcore.isolation.pool import ProcessDiedError
from evalcore.model.run import Plan, State
from evalcore.model.suite import Suite
from evalcore.pipeline.plan import is_instant
from evalcore.pipeline.process import ShardProcess
from evalcore.pipeline.session import ExecuteOptions, ShardCall
from evalcore.planning.expand import WorkItem
from evalcore.planning.spool import CaseSpool
from evalcore.storage.runs import StoredRun
from evalcore.trust.processes import total_memory, usable_cores

Ended = ShardReceipt | Stopped
# While one shard is committed and one drains, the items of a third one begin.
_SHARDS_AHEAD: Final = 3
# Below it the start of processes takes longer than they save.
_MANY_ITEMS: Final = 40_000
_MOST_PROCESSES: Final = 8
# Each needs memory of its own: rows of a shard, and DuckDB, which writes them.
_BYTES_OF_ONE: Final = 512 << 20


class Executor(Protocol):
    """Executes shards somewhere. `slots` may change: it is read before each submit."""

    @property
    def slots(self) -> int:
        """How many shards may be in flight."""

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Begin a shard. The future raises `ProcessDiedError` if its process has died."""

    def close(self, *, cancel: bool) -> None:
        """Wait for what runs, or cancel it."""


class InlineExecutor:
    """Executes shards in the worker of this process."""

    def __init__(self, opened: OpenRun, concurrency: int | None) -> None:
        """Take a run that is open in this process, and how many of its items run at once."""
        self._opened = opened
        self._concurrency = concurrency or FIRST

    @property
    def slots(self) -> int:
        """As many shards as use all places."""
        limit = self._opened.limit or self._concurrency
        # Of shards with few items more have to be open to use all places.
        return _SHARDS_AHEAD + 2 * limit // max(1, self._opened.shards.plan.shard_size)

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Begin a shard in the event loop."""
        return self._opened.execute(self._opened.shards.plan.shard_of(call.first_item))

    def close(self, *, cancel: bool) -> None:
        """Stop the items that run if they are to be cancelled."""
        if cancel:
            self._opened.stop()


class ProcessExecutor:
    """Executes shards in child processes: `workers` of them, started at once."""

    def __init__(self, run: StoredRun, options: ExecuteOptions, shards: int) -> None:
        """Start the processes for so many shards; no more than can have a call of a provider."""
        most = most_processes(run.definition, options.settings) or options.workers
        count = min(options.workers, most)
        self._processes = [
            ShardProcess(run, options, ConcurrencyShare(number, count))
            for number in range(min(count, shards))
        ]
        # Which process had a shard: it keeps the rows of one that it could not commit.
        self._last: dict[int, int] = {}

    @property
    def slots(self) -> int:
        """How many shards may be in flight: two for each process, one begins while one drains."""
        return 2 * len(self._processes)

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Let the process execute the shard that had it before, else the one with the fewest."""
        if not self._last:
            for each in self._processes[1:]:
                each.open(call)
        loads = [each.open_calls for each in self._processes]
        number = self._last.setdefault(call.first_item, loads.index(min(loads)))
        return self._processes[number].call(call)

    def close(self, *, cancel: bool) -> None:
        """End the processes."""
        if cancel:
            for process in self._processes:
                process.stop()
        for process in self._processes:
            process.close()


def worker_count(suite: Suite, plan: Plan) -> int:
    """Return how many processes execute a run of the suite if nobody says it.

    More than one only where many items wait for nothing: items that wait for something (a model, a
    program, foreign Python, a workspace) run at the same time in one process.
    """
    cases, definition = suite.cases, suite.definition
    if plan.items < _MANY_ITEMS or suite.objects or not isinstance(cases, CaseSpool):
        return 1
    waits = not AWAITED.isdisjoint(cases.checks()) or cases.has_workspaces()
    if waits or definition.scorers or not is_instant(definition):
        return 1
    memory = total_memory()
    by_memory = _MOST_PROCESSES if memory is None else memory // _BYTES_OF_ONE
    return max(1, min(usable_cores(), by_memory, _MOST_PROCESSES))


class AloneExecutor:
    """Executes shards that processes died with, one at a time (`session.execute_alone`)."""

    slots = 1

    def __init__(self, opened: OpenRun, options: ExecuteOptions) -> None:
        """Take a run that is open in this process."""
        self._stopper = Stopper()
        options.stopper.listen(self._stopper.stop)
        self._opened, self._options = opened, replace(options, stopper=self._stopper)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evalcore-alone")

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Begin a shard in a thread, which starts child processes."""
        return self._thread.submit(execute_alone, self._opened, call, self._options)

    def close(self, *, cancel: bool) -> None:
        """Wait for what runs, or end it."""
        if cancel:
            self._stopper.stop()
        self._thread.shutdown()


def execute_alone(
    opened: OpenRun, call: ShardCall, options: ExecuteOptions
) -> ShardReceipt | Stopped:
    """Execute a shard that processes died with item by item in a child process.

    The item that ends its process is in error, which names it; the others complete. Blocks.
    """
    shards, stopper = opened.shards, options.stopper
    shard = shards.open(shards.plan.shard_of(call.first_item), copy_context())
    process = ShardProcess(shards.run, options)
    try:
        for position, item in enumerate(shard.items):
            if stopper.draining:
                return Stopped(shard.number)
            forget = stopper.listen(process.stop)
            try:
                row = process.call(call, item.number).result()
            except ProcessDiedError as died:
                finished = _deadly_item(item, died)
                shards.record(shard, position, finished)
                if options.progress is not None:
                    options.progress(finished)
                continue
            finally:
                forget()
            if row is None:
                return Stopped(shard.number)
            shards.keep(shard, position, row)
    finally:
        process.close()
    return opened.commit(shard).result()


def _deadly_item(item: WorkItem, died: ProcessDiedError) -> FinishedItem:
    message = (
        f"the process that executed this item ended with {died}; it was executed alone, after two "
        "processes had died that executed its shard"
    )
    now_us = time.time_ns() // 1000
    error = {"kind": "process", "message": message}
    return FinishedItem(item, State.ERROR, now_us, now_us, error=error)


GROUP = "evalcore.runners"


class RunnerAwayError(EvalError):
    """The orchestrator's server does not answer, or cannot take the run."""


class Stage(StrEnum):
    """How far a submitted run is: not begun by a worker, begun, ended, ended by a cancellation."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"


class Submission(NamedTuple):
    """What the orchestrator says of a submitted run; `reason` says how it ended."""

    stage: Stage
    reason: str = ""


class Runner(Protocol):
    """An orchestrator that executes and finishes a run that stands planned in its store."""

    def is_configured(self) -> bool:
        """Whether the environment names a server that runs can be submitted to."""

    def prepare(self, runner: str, processes: int | None = None) -> int:
        """Return for how many processes to plan a run whose shards this task runner executes.

        `processes` are those that were asked for. Raises `UsageError` if it cannot be used.
        """

    def connect(self) -> None:
        """Reach the orchestrator's server, before anything is planned; raise `UsageError`."""

    def start(
        self,
        run: StoredRun,
        options: ExecuteOptions,
        runner: str = "auto",
        processes: int | None = None,
    ) -> None:
        """Return when the run has its final state; raise `EvalError` if it cannot get there."""

    def cancel(self, run: StoredRun) -> None:
        """Ask for the run to be cancelled; committed rows stay."""

    def submit(self, run: StoredRun) -> None:
        """Ask the server's workers to execute the run; a run is submitted once, however often.

        Raises `RunnerAwayError`.
        """

    def submission(self, run: StoredRun) -> Submission:
        """Return how far a submitted run is. Raises `RunnerAwayError`."""

    def withdraw(self, run: StoredRun) -> bool:
        """Take back a run that no worker has begun; False if one has. Raises `RunnerAwayError`."""


def find_runner(name: str) -> Runner:
    """Return the runner that an installed package offers under `name`; raise `UsageError`."""
    return cast("Runner", find_offered(GROUP, name, "runner"))


def find_configured_runner() -> Runner | None:
    """Return the first installed runner, by name, that the environment names a server for."""
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        runner = cast("Runner", entry.load()())
        if runner.is_configured():
            return runner
    return None
