"""Shards that a scheduler assigns to this process, of a run that other processes share."""

from __future__ import annotations

import queue
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Self

from evalcore.errors import EvalError
from evalcore.execution.adaptive import ConcurrencyShare
from evalcore.execution.lanes.claims import LEASE_S, Claims
from evalcore.execution.lanes.crashes import abandon_claims
from evalcore.execution.lanes.lease_renewer import LeaseRenewer
from evalcore.execution.row import ItemEnd
from evalcore.execution.stored_shards import ShardReceipt
from evalcore.model.run import State
from evalcore.pipeline.execute import execute_shards, settle_plan
from evalcore.pipeline.lane import refuse_store_without_conditions
from evalcore.pipeline.run_calls import ExecuteOptions, RunCalls
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    import asyncio

    from evalcore.execution.pool import Pool


class AssignedShard(NamedTuple):
    """What became of a shard: the receipt of its commit, None if this process committed nothing.

    `item_end` is the outcome, else the state, of the item of a shard that has a single one.
    """

    receipt: ShardReceipt | None = None
    item_end: str = ""


class AssignedShards:
    """Executes the shards of one run that a scheduler assigns to this process; a context.

    As a lane does, except that the scheduler and no claim says which shard is next: a shard whose
    claim another process holds is taken over. `threads` call `execute` at the same time and share
    the concurrency; budgets and rate limits are shared with the run's other processes. `worker`
    names this process among them. Raises `StoreError` if the store does not keep conditional
    writes.
    """

    def __init__(
        self,
        run: StoredRun,
        options: ExecuteOptions,
        *,
        worker: str,
        threads: int = 1,
        lease_s: float = LEASE_S,
    ) -> None:
        refuse_store_without_conditions(run)
        manifest = run.manifest()
        self._run, self._plan = run, manifest.plan
        self._claims = Claims(run, worker, manifest.plan, lease_s=lease_s)
        self._lock = threading.Lock()
        self._pools: dict[Pool, asyncio.AbstractEventLoop] = {}
        self._stopped = threading.Event()
        if manifest.state is not State.RUNNING or run.is_cancel_requested():
            self._stopped.set()
        self._shares: queue.SimpleQueue[ConcurrencyShare] = queue.SimpleQueue()
        for thread in range(threads):
            self._shares.put(ConcurrencyShare(thread, threads))
        options = replace(options, stopped=self._stopped.is_set)
        with ExitStack() as stack:
            stack.callback(self._abandon)
            stack.enter_context(LeaseRenewer(run, self._claims, self.stop))
            self._calls = stack.enter_context(RunCalls(run, options, manifest))
            self._stack = stack.pop_all()
        self._options = replace(options, calls=self._calls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def stopped(self) -> bool:
        """Whether the run was cancelled: every later shard is left alone."""
        return self._stopped.is_set()

    def execute(self, shard: int) -> AssignedShard:
        """Execute a shard, unless it has a result or the run is cancelled; return what it became.

        Raises `StoreError` if its rows cannot be committed.
        """
        share = self._shares.get()
        try:
            if self.stopped or not self._claim(shard):
                return AssignedShard()
            return self._execute(shard, share)
        finally:
            self._shares.put(share)

    def stop(self) -> None:
        """Leave every later shard alone, and uncommitted those whose items wait; any thread."""
        self._stopped.set()
        with self._lock:
            for pool, loop in self._pools.items():
                with suppress(RuntimeError):  # the loop has just ended
                    loop.call_soon_threadsafe(pool.stop)

    def close(self) -> None:
        """Give back what this process has of the run's limits, and the shards not committed."""
        self._stack.close()

    def _claim(self, shard: int) -> bool:
        with self._lock:
            # The pilot goes first, and is all that may be executed until it has settled the plan.
            if not self._plan.settled and shard:
                self._plan = settle_plan(self._run, self._run.manifest())
                self._claims.settle(self._plan)
        if self._calls.stop_rule is not None:
            self._calls.stop_rule.look()
        return self._claims.claim(shard) or self._claims.take(shard)

    def _execute(self, shard: int, share: ConcurrencyShare) -> AssignedShard:
        ends: list[str] = []
        pools: list[Pool] = []

        def report(finished: ItemEnd) -> None:
            ends.append(str(finished.outcome or finished.status))

        def began(pool: Pool) -> None:
            pools.append(pool)
            self._began(pool)

        single = len(self._plan.shard_items(shard)) == 1
        progress = report if single else None
        options = replace(self._options, share=share, progress=progress, on_start=began)
        try:
            receipts = execute_shards(self._run, self._plan, (shard,), options, self._claims)
        finally:
            with self._lock:
                for pool in pools:
                    self._pools.pop(pool, None)
        return AssignedShard(receipts[0] if receipts else None, ends[0] if ends else "")

    def _began(self, pool: Pool) -> None:
        import asyncio

        with self._lock:
            self._pools[pool] = asyncio.get_running_loop()
            if self.stopped:
                pool.stop()

    def _abandon(self) -> None:
        if self._claims.claimed:
            with suppress(EvalError):
                abandon_claims(self._run, self._claims.lane)
