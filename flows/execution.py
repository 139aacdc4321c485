"""One run's shards, executed by several threads that share its concurrency."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from uuid import UUID

from prefect import get_run_logger

from evalcore.errors import EvalError
from evalcore.execution.adaptive import ConcurrencyShare
from evalcore.execution.pool import Pool
from evalcore.execution.row import ItemEnd
from evalcore.execution.stored_shards import ShardReceipt
from evalcore.isolation.mode import Isolation
from evalcore.model.run import Plan, State
from evalcore.model.suite import Case
from evalcore.pipeline.execute import execute_shards, settle_plan
from evalcore.pipeline.plan import DEFAULT_CONCURRENCY, is_instant
from evalcore.pipeline.run_calls import ExecuteOptions, RunCalls
from evalcore.planning.shards import SINGLE_ITEM_LIMIT, pending_shards
from evalcore.report.escape import inert_message
from evalcore.settings import Settings
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from flows.publish import logged
from flows.rate_limits import PrefectRates

# Shards of live items run side by side, so that one starts while the other one drains.
_LIVE_THREADS = 2
# Of shards that wait for nothing one is graded while two others are committed: two threads of pure
# Python would only take the interpreter from each other.
_INSTANT_THREADS = 3
_MAX_THREADS = 64
_LEAVING_S = 0.1


class FlowExecution:
    """Executes shards of one run; safe to call from several threads.

    Stopped (by `stop`, or through a pool that `options.on_start` got), it leaves every later
    shard alone, and uncommitted those whose items wait for something.
    """

    def __init__(self, run: StoredRun, options: ExecuteOptions) -> None:
        self.run = run
        self.receipts: list[ShardReceipt] = []
        self.stopped = False
        # What became of the work item of each shard that has a single one.
        self.item_ends: dict[int, str] = {}
        self.left = False
        # The flow run that executes the run, once it has begun.
        self.flow_run: UUID | None = None
        # Why it came to no decision, in words that are not escaped for Prefect's pages.
        self.refusal: EvalError | None = None
        # The threads share limits and recordings, and all workers the server's rate limits.
        if options.rates is None and options.settings.rate_limits is None:
            options = replace(options, rates=PrefectRates())
        manifest = run.manifest()
        self._calls = RunCalls(run, options, manifest)
        self._options = replace(options, calls=self._calls)
        self._lock = threading.Lock()
        self._shards_in_flight = 0
        self._progress_lock = threading.Lock()
        self._pools: dict[Pool, asyncio.AbstractEventLoop] = {}
        self._limit = (
            options.concurrency or run.definition.limits.concurrency or DEFAULT_CONCURRENCY
        )
        self._divide(manifest.plan)

    @property
    def imports(self) -> ImportPolicy:
        """What the run's suite may import here."""
        return self._options.imports

    @property
    def isolation(self) -> Isolation:
        """Where imported functions are called."""
        return self._options.isolation

    @property
    def settings(self) -> Settings:
        """This process's settings."""
        return self._options.settings

    def warn(self, message: str) -> None:
        """Say what people should know, in the flow run's log and as the options do."""
        get_run_logger().warning("%s", logged(message))
        self._options.warn(message)

    def note_committed(self, receipt: ShardReceipt) -> None:
        """Note a shard that another process has executed for this one."""
        with self._lock:
            self.receipts.append(receipt)
        if self._options.committed is not None:
            self._options.committed(self.executed_items)

    def settle(self) -> None:
        """Freeze the size of the shards after a pilot, which must have been executed."""
        self._divide(settle_plan(self.run, self.run.manifest()))

    def _divide(self, plan: Plan) -> None:
        """Divide the concurrency among as many threads as the plan has a use for."""
        self.plan = plan
        instant = is_instant(self.run.definition)
        limit = self._limit
        self.threads = self._thread_count(limit, instant=instant)
        self._turns = threading.BoundedSemaphore(1 if instant else self.threads)
        self._shares: queue.SimpleQueue[ConcurrencyShare] = queue.SimpleQueue()
        for thread in range(self.threads):
            self._shares.put(ConcurrencyShare(thread, self.threads))

    def _thread_count(self, limit: int, *, instant: bool) -> int:
        if not self.plan.settled:
            return 1
        if instant:
            return min(_INSTANT_THREADS, self.plan.shards)
        # A shard of one item has no use for more than one slot.
        threads = limit if self.plan.shard_size == 1 else _LIVE_THREADS
        return min(threads, limit, self.plan.shards, _MAX_THREADS)

    def pending(self) -> tuple[int, ...]:
        """Return the shards that have no result yet, in plan order; of an unsettled plan its pilot.

        The sizes of the others are not known before `settle`.
        """
        pending = pending_shards(self.plan, self.run.written_shards())
        return pending if self.plan.settled else tuple(shard for shard in pending if shard == 0)

    def earlier_items(self, pending: Sequence[int]) -> int:
        """Return how many items had been committed before this execution began.

        `pending` are the shards of a settled plan that have no result yet.
        """
        left = sum(len(self.plan.shard_items(shard)) for shard in pending)
        return self.plan.items - left - self.executed_items

    @property
    def executed_items(self) -> int:
        """How many items this execution has committed."""
        with self._lock:
            return sum(receipt.items for receipt in self.receipts)

    def namer(self) -> Callable[[int], str]:
        """Return what names shards: `shard-00042`, and its case where it is a single work item."""
        if self.plan.shard_size > 1 or self.plan.items > SINGLE_ITEM_LIMIT:
            return shard_name
        parts = range(self.plan.parts)
        cases = [case for part in parts for case in self.run.cases(part, self.plan)]
        return lambda shard: (
            f"{shard_name(shard)} {self._item_name(self.plan.shard_items(shard).start, cases)}"
        )

    def _item_name(self, item: int, cases: Sequence[Case]) -> str:
        case, repetition = divmod(item, self.plan.items_per_case)
        variant, iteration = divmod(repetition, self.plan.iterations)
        name = cases[case].id
        if self.plan.variants > 1:
            name += f" {self.run.definition.variants[variant].id}"
        if self.plan.iterations > 1:
            name += f" {iteration}"
        return inert_message(" ".join(name.split()))

    def execute(self, shard: int) -> ShardReceipt | None:
        """Execute a shard and return its receipt; None if the execution was stopped."""
        share = self._shares.get()
        try:
            with _Turn(self._turns, len(self.plan.shard_items(shard))) as turn:
                if self.stopped or self.left:
                    return None
                receipts = self._execute(shard, share, turn)
        finally:
            self._shares.put(share)
        with self._lock:
            self.receipts.extend(receipts)
        return receipts[0] if receipts else None

    def _execute(
        self, shard: int, share: ConcurrencyShare, turn: _Turn
    ) -> tuple[ShardReceipt, ...]:
        pools: list[Pool] = []
        with self._lock:
            self._shards_in_flight += 1
        single = len(self.plan.shard_items(shard)) == 1

        def began(pool: Pool) -> None:
            pools.append(pool)
            self._began(pool)

        def report(finished: ItemEnd) -> None:
            turn.count()
            if single:
                self.item_ends[shard] = str(finished.outcome or finished.status)
            if self._options.progress is not None:
                with self._progress_lock:
                    self._options.progress(finished)

        options = replace(self._options, share=share, progress=report, on_start=began)
        try:
            return execute_shards(self.run, self.plan, (shard,), options)
        finally:
            with self._lock:
                self._shards_in_flight -= 1
            self._ended(pools)

    def close(self) -> None:
        """Wait for what is being recorded; nothing is executed afterwards."""
        self._calls.close()

    def leave(self) -> None:
        """Begin no other shard, and wait until those that were begun have ended.

        Another process owns the run afterwards: a flow that is left takes no part in it any more.
        """
        self.left = True
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Return once no shard is being executed; it has to be stopped or left before."""
        while True:
            with self._lock:
                if not self._shards_in_flight:
                    return
            time.sleep(_LEAVING_S)

    def stop(self) -> None:
        """End the execution; from any thread."""
        with self._lock:
            self.stopped = True
            for pool, loop in self._pools.items():
                with suppress(RuntimeError):  # the loop has just ended
                    loop.call_soon_threadsafe(pool.stop)

    def _began(self, pool: Pool) -> None:
        with self._lock:
            self._pools[pool] = asyncio.get_running_loop()
            if self.stopped:
                pool.stop()
        if self._options.on_start is not None:
            self._options.on_start(pool)

    def _ended(self, pools: Sequence[Pool]) -> None:
        with self._lock:
            for pool in pools:
                self._pools.pop(pool, None)
        # Who stops the pool that he was given means the run.
        if any(pool.stopped for pool in pools):
            self.stop()


class _Turn:
    """A shard's turn at executing its items; it ends with the last item, before the commit."""

    def __init__(self, turns: threading.Semaphore, items: int) -> None:
        self._turns = turns
        self._left = items

    def __enter__(self) -> _Turn:
        self._turns.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        if self._left > 0:
            self._turns.release()

    def count(self) -> None:
        """Note that an item is finished."""
        self._left -= 1
        if self._left == 0:
            self._turns.release()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage seldom, and not among what exists already: Prefect has a million objects."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def is_complete(run: StoredRun) -> bool:
    """Whether the run has its decision and its report."""
    return run.manifest().state is State.COMPLETED


def shard_name(shard: int) -> str:
    """Return the name of a shard's task run."""
    return f"shard-{shard:05d}"


@contextmanager
def brought_along(execution: FlowExecution) -> Iterator[None]:
    """Let the flow that is called inside execute this, with this process's own trust."""
    token = _LOCAL.set(execution)
    try:
        yield
    finally:
        _LOCAL.reset(token)


def local_execution() -> FlowExecution | None:
    """Return the execution that this process brought along; None in a deployment."""
    return _LOCAL.get()


_LOCAL: ContextVar[FlowExecution | None] = ContextVar("evalcore_local_execution", default=None)
