"""One run's shards, executed by several threads that share its concurrency."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace

from evalcore.execution.pool import Pool
from evalcore.execution.row import Finished
from evalcore.execution.shard import ShardReceipt
from evalcore.model.run import State
from evalcore.model.suite import Case
from evalcore.pipeline import DEFAULT_CONCURRENCY, ExecuteOptions, execute_shards
from evalcore.planning.shards import SINGLE_ITEM_LIMIT, pending_shards
from evalcore.planning.spool import decode_part
from evalcore.storage.runs import StoredRun

# One thread grades while the other one reads a part of the plan or writes rows.
BUSY_THREADS = 2
_MAX_THREADS = 64


class Execution:
    """Executes shards of one run; safe to call from several threads.

    Stopped (by `stop`, or by whoever got a pool through `options.on_start`), it ends between work
    items and leaves every later shard alone.
    """

    def __init__(self, run: StoredRun, options: ExecuteOptions) -> None:
        self.run = run
        self.plan = run.manifest().plan
        self.receipts: list[ShardReceipt] = []
        self.stopped = False
        self._options = options
        self._lock = threading.Lock()
        self._progress_lock = threading.Lock()
        self._pools: set[Pool] = set()
        limit = options.concurrency or run.definition.limits.concurrency or DEFAULT_CONCURRENCY
        # A shard of one item has no use for more than one place.
        threads = limit if self.plan.shard_size == 1 else BUSY_THREADS
        self.threads = max(1, min(threads, limit, self.plan.shards, _MAX_THREADS))
        self._shares: queue.SimpleQueue[int] = queue.SimpleQueue()
        for thread in range(self.threads):
            self._shares.put(limit // self.threads + (thread < limit % self.threads))

    def pending(self) -> tuple[int, ...]:
        """Return the shards that have no result yet, in plan order."""
        return pending_shards(self.plan, self.run.written_shards())

    def namer(self) -> Callable[[int], str]:
        """Return what names shards: `shard-00042`, and its case where it is a single work item."""
        if self.plan.shard_size > 1 or self.plan.items > SINGLE_ITEM_LIMIT:
            return shard_name
        cases = [
            case
            for number in range(self.plan.parts)
            for case in decode_part(self.run.plan_part(number))
        ]
        return lambda shard: f"{shard_name(shard)} {self._item_name(shard, cases)}"

    def _item_name(self, item: int, cases: Sequence[Case]) -> str:
        definition = self.run.definition
        case, place = divmod(item, self.plan.items_per_case)
        variant, iteration = divmod(place, self.plan.iterations)
        name = cases[case].id
        if self.plan.variants > 1:
            name += f" {definition.variants[variant].id}"
        return name if self.plan.iterations == 1 else f"{name} {iteration}"

    def execute(self, shard: int) -> ShardReceipt | None:
        """Execute a shard and return its receipt; None if the execution was stopped."""
        if self.stopped:
            return None
        pools: list[Pool] = []

        def began(pool: Pool) -> None:
            pools.append(pool)
            self._began(pool)

        share = self._shares.get()
        try:
            options = replace(
                self._options,
                concurrency=share,
                progress=None if self._options.progress is None else self._report,
                on_start=began,
            )
            receipts = execute_shards(self.run, self.plan, (shard,), options)
        finally:
            self._shares.put(share)
            self._ended(pools)
        with self._lock:
            self.receipts.extend(receipts)
        return receipts[0] if receipts else None

    def stop(self) -> None:
        """End the execution between work items."""
        with self._lock:
            self.stopped = True
            for pool in self._pools:
                pool.stop()

    def _began(self, pool: Pool) -> None:
        with self._lock:
            self._pools.add(pool)
            if self.stopped:
                pool.stop()
        if self._options.on_start is not None:
            self._options.on_start(pool)

    def _ended(self, pools: Sequence[Pool]) -> None:
        with self._lock:
            self._pools.difference_update(pools)
        # Who stops the pool that he was given means the run.
        if any(pool.stopped for pool in pools):
            self.stop()

    def _report(self, finished: Finished) -> None:
        with self._progress_lock:
            if self._options.progress is not None:
                self._options.progress(finished)


def is_complete(run: StoredRun) -> bool:
    """Whether the run has its decision and its report."""
    return run.manifest().state is State.COMPLETED


def shard_name(shard: int) -> str:
    """Return the name of a shard's task run."""
    return f"shard-{shard:05d}"


LOCAL: ContextVar[Execution | None] = ContextVar("evalcore_local_execution", default=None)
"""The execution that this process brought along, with its own trust; None in a deployment."""
