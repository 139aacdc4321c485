"""Executors: where the shards of a run are executed. Each of them calls `execute_shard`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

from evalcore.errors import StoreError
from evalcore.execution.adaptive import FIRST
from evalcore.execution.row import FinishedItem
from evalcore.execution.shards import ShardReceipt
from evalcore.execution.worker import OpenRun, Stopped
from evalcore.model.run import State
from evalcore.pipeline.process import ProcessDiedError, ShardProcess
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
        self._opened = opened
        self._concurrency = concurrency or FIRST

    @property
    def slots(self) -> int:
        limit = self._opened.limit or self._concurrency
        # Of shards with few items more have to be open to use all places.
        return _SHARDS_AHEAD + 2 * limit // max(1, self._opened.shards.plan.shard_size)

    def submit(self, call: ShardCall) -> Future[Ended]:
        return self._opened.execute(self._opened.shards.plan.shard_of(call.first_item))

    def close(self, *, cancel: bool) -> None:
        if cancel:
            self._opened.stop()


class ProcessExecutor:
    """Executes shards in child processes, started when there is work for them."""

    def __init__(self, run: StoredRun, options: ExecuteOptions, count: int) -> None:
        self._run, self._options, self._count = run, options, count
        self._processes: list[ShardProcess] = []

    @property
    def slots(self) -> int:
        return 2 * self._count

    def submit(self, call: ShardCall) -> Future[Ended]:
        self._processes = [process for process in self._processes if process.is_alive]
        idle = min(self._processes, key=lambda process: process.open_calls, default=None)
        if idle is None or (idle.open_calls and len(self._processes) < self._count):
            idle = ShardProcess(self._run, self._options)
            self._processes.append(idle)
        return idle.call(call._replace(concurrency=self._share(call.concurrency)))

    def _share(self, concurrency: int) -> int:
        return -(-concurrency // self._count)

    def close(self, *, cancel: bool) -> None:
        if cancel:
            for process in self._processes:
                process.stop()
        for process in self._processes:
            process.close()


class AloneExecutor:
    """Executes shards that processes died with: item by item, in a child process for that.

    The item that ends its process is in error; the others complete. One shard at a time.
    """

    slots = 1

    def __init__(self, opened: OpenRun, options: ExecuteOptions) -> None:
        self._opened, self._options = opened, options
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evalcore-alone")
        self._process: ShardProcess | None = None
        self._cancelled = False

    def submit(self, call: ShardCall) -> Future[Ended]:
        return self._thread.submit(self._execute, call)

    def close(self, *, cancel: bool) -> None:
        self._cancelled = cancel
        if cancel and self._process is not None:
            self._process.close(kill=True)
        self._thread.shutdown()
        if self._process is not None:
            self._process.close()

    def _execute(self, call: ShardCall) -> Ended:
        from contextvars import copy_context

        shards = self._opened.shards
        number = shards.plan.shard_of(call.first_item)
        shard = shards.open(number, copy_context())
        for position, item in enumerate(shard.items):
            if self._cancelled or self._options.stopper.draining:
                return Stopped(number)
            try:
                row = self._called().call(call, item.number).result()
            except ProcessDiedError as died:
                if self._cancelled:
                    return Stopped(number)
                self._process = None
                now_us = int(shard.started_at * 1e6)
                message = (
                    f"the process that executed this item ended with {died}, as two before it did "
                    "that had its shard"
                )
                error = {"kind": "process", "message": message}
                finished = FinishedItem(item, State.ERROR, now_us, now_us, error=error)
                shards.record(shard, position, finished)
                if self._options.progress is not None:
                    self._options.progress(finished)
                continue
            if row is None:
                return Stopped(number)
            shards.keep(shard, position, row)
        for wait_s in COMMIT_RETRIES_S:
            try:
                return shards.commit(shard)
            except StoreError:
                import time

                time.sleep(wait_s)
        return shards.commit(shard)

    def _called(self) -> ShardProcess:
        if self._process is None or not self._process.is_alive:
            self._process = ShardProcess(self._opened.shards.run, self._options)
        return self._process


COMMIT_RETRIES_S: Final = (1.0, 5.0)
MakeExecutor = Callable[[StoredRun, ExecuteOptions, OpenRun], Executor]
