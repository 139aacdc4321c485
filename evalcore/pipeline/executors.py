"""Executors: where the shards of a run are executed. Each of them calls `execute_shard`."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

from evalcore.execution.adaptive import FIRST
from evalcore.execution.shards import ShardReceipt
from evalcore.execution.worker import OpenRun, Stopped
from evalcore.pipeline.process import ShardProcess, execute_alone
from evalcore.pipeline.session import ExecuteOptions, ShardCall
from evalcore.storage.runs import StoredRun

Ended = ShardReceipt | Stopped
# While one shard is committed and one drains, the items of a third one begin.
_SHARDS_AHEAD: Final = 3


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
    """Executes shards in child processes, started when there is work for them."""

    def __init__(self, run: StoredRun, options: ExecuteOptions) -> None:
        """Take the options, whose `workers` says how many processes there are."""
        self._run, self._options, self._count = run, options, options.workers
        self._processes: list[ShardProcess] = []

    @property
    def slots(self) -> int:
        """Two shards for each process: one begins while the other one drains."""
        return 2 * self._count

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Let the process execute the shard that has the fewest."""
        self._processes = [process for process in self._processes if process.is_alive]
        idle = min(self._processes, key=lambda process: process.open_calls, default=None)
        if idle is None or (idle.open_calls and len(self._processes) < self._count):
            idle = ShardProcess(self._run, self._options)
            self._processes.append(idle)
        return idle.call(call._replace(concurrency=self._share(call.concurrency)))

    def _share(self, concurrency: int) -> int:
        return -(-concurrency // self._count)

    def close(self, *, cancel: bool) -> None:
        """End the processes."""
        if cancel:
            for process in self._processes:
                process.stop()
        for process in self._processes:
            process.close()


class AloneExecutor:
    """Executes shards that processes died with, one at a time (`process.execute_alone`)."""

    slots = 1

    def __init__(self, opened: OpenRun, options: ExecuteOptions) -> None:
        """Take a run that is open in this process."""
        self._opened, self._options = opened, options
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evalcore-alone")

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Begin a shard in a thread, which starts child processes."""
        return self._thread.submit(execute_alone, self._opened, call, self._options)

    def close(self, *, cancel: bool) -> None:  # noqa: ARG002 - as `Executor`
        """Wait for what runs; a stopped run ends it after the item that runs."""
        self._thread.shutdown()
