"""A lane: one process of several that share a run's shards through nothing but the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from evalcore.errors import EvalError, RunConflictError, StoreError
from evalcore.execution.lanes.claims import LEASE_S, Claims
from evalcore.execution.lanes.crashes import abandon_claims
from evalcore.execution.lanes.lease_renewer import LeaseRenewer
from evalcore.execution.lanes.waiting import Waiting
from evalcore.execution.stored_shards import ShardReceipt
from evalcore.model.run import Manifest, Plan, State
from evalcore.pipeline.execute import (
    execute_isolated,
    execute_shards,
    execute_with_pilot,
    settle_plan,
)
from evalcore.pipeline.run_calls import ExecuteOptions, RunCalls
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    import asyncio

    from evalcore.execution.pool import Pool

_PAUSE_S = 1.0
# A pilot takes a moment, and all lanes wait for it.
_PILOT_PAUSE_S = 0.1


class LaneEnd(NamedTuple):
    """What a lane did: the shards that it executed, and whether the run was cancelled meanwhile.

    `first_manifest` is the manifest as it was when the lane began.
    """

    receipts: tuple[ShardReceipt, ...]
    cancelled: bool
    first_manifest: Manifest


def execute_lane(
    run: StoredRun,
    options: ExecuteOptions | None = None,
    *,
    lane: str,
    lease_s: float = LEASE_S,
    isolated: int | None = None,
) -> LaneEnd:
    """Execute shards of the run that no other lane does, until each has its result; then return.

    Also returns when the run is to be cancelled (`StoredRun.request_cancel`) or is stopped
    (`options`). `lane` names this process among those that share the run. With `isolated`
    it executes this shard, whose holder has died for sure, and no other. Raises `StoreError` if the
    store does not keep conditional writes, `RunConflictError` if the run is not running.
    """
    refuse_store_without_conditions(run)
    manifest = run.manifest()
    if manifest.state is State.COMPLETED:
        return LaneEnd((), cancelled=False, first_manifest=manifest)
    if manifest.state is not State.RUNNING:
        raise RunConflictError(
            f"run {run.run_id} is {manifest.state}; `evalcore run --resume {run.run_id}` goes on"
        )
    # Gates are decided by the shards without a gap from the first one on.
    in_order = run.definition.policy.ends_when_decided
    claims = Claims(run, lane, manifest.plan, lease_s=lease_s, in_order=in_order)
    claims.abandon(_abandoned_claims(manifest))
    lane_execution = _LaneExecution(run, manifest, options or ExecuteOptions(), claims, isolated)
    receipts, cancelled = lane_execution.execute()
    return LaneEnd(receipts, cancelled, manifest)


def _abandoned_claims(manifest: Manifest) -> Mapping[str, str]:
    claims: Mapping[str, str] = manifest.execution.get("abandoned_claims", {})
    return claims


def refuse_store_without_conditions(run: StoredRun) -> None:
    """Raise `StoreError` if the store of the run cannot be shared by several workers."""
    if not run.store.probe_conditional_writes():
        raise StoreError(
            f"{run.store.url}: this server does not honour conditional writes (If-None-Match, "
            "If-Match), so workers cannot share a run there: run it in one process"
        )


class _LaneExecution:
    def __init__(
        self,
        run: StoredRun,
        manifest: Manifest,
        options: ExecuteOptions,
        claims: Claims,
        isolated: int | None,
    ) -> None:
        self._run, self._manifest = run, manifest
        self._isolated = isolated
        self._claims = claims
        self._lane_options = options
        self._cancelled = threading.Event()
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = Waiting(run, claims)
        self._pause_s = min(_PAUSE_S, claims.lease_s / 4)
        self._options = replace(options, on_start=self._started, stopped=self._is_stopped)

    def execute(self) -> tuple[tuple[ShardReceipt, ...], bool]:
        """Execute what there is for this lane; return that, and whether the run was cancelled."""
        try:
            with (
                LeaseRenewer(self._run, self._claims, self._cancel),
                RunCalls(self._run, self._options, self._manifest) as calls,
            ):
                self._options = replace(self._options, calls=calls)
                receipts = self._execute()
        finally:
            self._abandon()
        return receipts, self._cancelled.is_set()

    def _abandon(self) -> None:
        """Leave what is not committed to others; without it they wait for the lease to expire."""
        if self._claims.claimed:
            with suppress(EvalError):
                abandon_claims(self._run, self._claims.lane)

    def _execute(self) -> tuple[ShardReceipt, ...]:
        """Execute shards; those beside the pilot once the plan is settled."""
        if self._isolated is not None:
            # Each item that waits has a pool of its own; the end of one is not the lane's.
            options = replace(self._options, stopped=self._is_cancelled)
            plan = self._manifest.plan
            return execute_isolated(self._run, plan, self._isolated, options, self._claims)
        while not self._is_stopped():
            manifest = self._run.manifest()
            # A pilot has a result and is not settled if its worker died in between.
            plan = settle_plan(self._run, manifest)
            if plan.settled:
                shards = self._shards(plan)
                return execute_shards(self._run, plan, shards, self._options, self._claims)
            if self._is_look_due(manifest) and self._claims.claim_next() is not None:
                return execute_with_pilot(
                    self._run, manifest, self._options, self._shards, self._claims
                )
            self._pause(_PILOT_PAUSE_S)
        return ()

    def _is_look_due(self, manifest: Manifest) -> bool:
        abandoned = _abandoned_claims(manifest)
        self._claims.abandon(abandoned)
        return self._waiting.is_look_due(abandoned)

    def _shards(self, plan: Plan) -> Iterator[int]:
        """Yield shards that this lane has claimed, until none is left that others might lose."""
        self._claims.settle(plan)
        while not self._is_stopped():
            shard = self._claims.claim_next()
            if shard is not None:
                self._waiting.end()
                yield shard
            elif self._claims.others:
                self._wait_for_others()
            else:
                return

    def _wait_for_others(self) -> None:
        """Return when a shard may have become free, or have got its result."""
        while not self._is_stopped():
            self._pause(self._pause_s)
            # Shards of a lane that has ended since may be claimed at once.
            if self._is_look_due(self._run.manifest()):
                return

    def _pause(self, first_s: float) -> None:
        """Wait for the next look; a stop is noticed within `first_s`."""
        until = time.monotonic() + self._waiting.pause_s(first_s)
        while (left_s := until - time.monotonic()) > 0 and not self._is_stopped():
            self._cancelled.wait(min(left_s, first_s))

    def _is_stopped(self) -> bool:
        ended = self._pool is not None and (self._pool.stopped or self._pool.ended)
        return ended or self._is_cancelled()

    def _is_cancelled(self) -> bool:
        return self._cancelled.is_set() or self._lane_options.stopped()

    def _started(self, pool: Pool) -> None:
        import asyncio

        self._pool, self._loop = pool, asyncio.get_running_loop()
        if self._cancelled.is_set():
            pool.stop()
        if self._lane_options.on_start is not None:
            self._lane_options.on_start(pool)

    def _cancel(self) -> None:
        self._cancelled.set()
        if self._pool is not None and self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._pool.stop)
            except RuntimeError:  # that loop has ended
                return
