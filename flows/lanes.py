"""Lanes of a run: how many, started on a work pool, watched through the store, started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from evalcore.execution.lanes.claims import LEASE_S, Claims
from evalcore.pipeline.lane import refuse_store_without_conditions
from prefect import get_run_logger, runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound

from evalcore.errors import EvalError, StoreError, UsageError
from evalcore.model.run import Plan, State
from evalcore.pipeline.plan import DEFAULT_CONCURRENCY, is_instant
from evalcore.planning.shards import pending_shards
from evalcore.storage.runs import StoredRun
from flows.publish import RunProgress, logged

LANE_DEPLOYMENT = "evaluate-lane/lane"

# docs/reference/prefect.md has the rule: up to so many items or seconds, shards are tasks.
_TASK_ITEMS = 1_000
_TASK_S = 60.0
_GUESSED_LATENCY_S = 1.0
_INSTANT_ITEMS_PER_S = 10_000
# A lane starts in half a minute: it should have several to do.
_LANE_S = 300.0
_MOST_LANES = 8
_RESTARTS_PER_LANE = 2
_LOOK_S = 2.0
_ASK_PREFECT_S = 30.0


class RemainingWork(NamedTuple):
    """How much a run asks for: items that are not committed, and the seconds they may take."""

    items: int
    seconds: float


def work_left(run: StoredRun, concurrency: int | None) -> RemainingWork:
    """Return how much there is to execute in one process.

    An item takes as long as in the suite's earlier runs, or as in the pilot.
    """
    manifest, written = run.manifest(), run.written_shards()
    plan, latency_s = manifest.plan, manifest.settings.get("latency_s")
    items = plan.items - sum(len(plan.shard_items(shard)) for shard in written)
    if is_instant(run.definition):
        return RemainingWork(items, items / _INSTANT_ITEMS_PER_S)
    slots = concurrency or run.definition.limits.concurrency or DEFAULT_CONCURRENCY
    return RemainingWork(items, items * (latency_s or _GUESSED_LATENCY_S) / slots)


def are_many(items: int) -> bool:
    """Whether so many work items may be worth lanes, if they take long."""
    return items > _TASK_ITEMS


def choose_lanes(work: RemainingWork, *, lanes: int, has_pool: bool) -> int:
    """Return how many lanes execute the work, 0 for tasks of one process.

    `lanes` 0 leaves the choice to the rule of the page; with `has_pool` False there is nothing to
    run lanes on.
    """
    if lanes or not has_pool:
        return lanes
    if not are_many(work.items) or work.seconds <= _TASK_S:
        return 0
    return min(_MOST_LANES, max(2, round(work.seconds / _LANE_S)))


def has_lane_deployment() -> bool:
    """Whether this flow run came from a deployment, and lanes can be started beside it."""
    if runtime.deployment.id is None:
        return False
    return _is_deployed()


def _is_deployed() -> bool:
    with get_client(sync_client=True) as client:
        try:
            deployment = client.read_deployment_by_name(LANE_DEPLOYMENT)
        except ObjectNotFound:
            return False
    return deployment.work_pool_name is not None


def execute_in_lanes(
    run: StoredRun,
    lanes: int,
    progress: RunProgress,
    *,
    concurrency: int | None = None,
    lease_s: float = LEASE_S,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Start lanes and return when each shard has its result, or the run is to be cancelled.

    Only the store is watched: a lane whose claims are no longer renewed is replaced, within a
    budget. Prefect is asked only when nothing happens for long. Raises `UsageError` without a
    deployment of lanes, `StoreError` once no lane is left.
    """
    refuse_store_without_conditions(run)
    if not _is_deployed():
        raise UsageError(
            f"lanes need a deployment '{LANE_DEPLOYMENT}' on a work pool: `prefect deploy --all`"
        )
    started = _Lanes(run, lanes, concurrency, lease_s)
    while not stopped() and not run.is_cancel_requested():
        manifest = run.manifest()
        plan, written = manifest.plan, run.written_shards()
        progress.show(sum(len(plan.shard_items(shard)) for shard in written))
        if plan.settled and not pending_shards(plan, written):
            progress.show(plan.items, now=True)
            return
        if manifest.state is not State.RUNNING:
            return
        started.tend(plan)
        time.sleep(_LOOK_S)


class _Lanes:
    def __init__(self, run: StoredRun, count: int, concurrency: int | None, lease_s: float) -> None:
        self._run = run
        self._parameters = {
            "run_id": run.run_id,
            "store": run.store.url,
            "concurrency": concurrency,
            "lease_s": lease_s,
        }
        self._observer = Claims(run, "parent", run.manifest().plan, lease_s=lease_s)
        self._restarts = _RESTARTS_PER_LANE * count
        self._replaced: set[str] = set()
        self._flow_runs: dict[str, UUID] = {}
        self._ask_at = time.monotonic() + _ASK_PREFECT_S
        for _ in range(count):
            self._start()

    def _start(self) -> None:
        name = f"lane-{len(self._flow_runs):03d}-{str(runtime.flow_run.id)[:8]}"
        started = run_deployment(
            LANE_DEPLOYMENT,
            parameters={**self._parameters, "lane": name},
            flow_run_name=f"{self._run.run_id} {name}",
            timeout=0,
            idempotency_key=f"{self._run.run_id}-{name}",
        )
        if isinstance(started, FlowRun):
            self._flow_runs[name] = started.id

    def tend(self, plan: Plan) -> None:
        """Replace lanes that have died; raise `StoreError` if none is left and none may start.

        Only lanes that this flow has started: those of earlier flows have ended long ago.
        """
        self._observer.settle(plan)
        self._observer.look()
        for lane in self._observer.dead_lanes() & self._flow_runs.keys() - self._replaced:
            self._replaced.add(lane)
            self._replace(f"lane '{lane}' does not renew its claims")
        if time.monotonic() >= self._ask_at:
            self._ask_at = time.monotonic() + _ASK_PREFECT_S
            ended = self._all_ended()
            if ended is not None and not self._replace(f"every lane has ended ({ended})"):
                raise StoreError(f"run {self._run.run_id} is not complete, and {ended}")

    def _replace(self, reason: str) -> bool:
        if self._restarts <= 0:
            return False
        self._restarts -= 1
        get_run_logger().warning("%s: another one is started", logged(reason))
        # The store goes before Prefect: lanes that live go on, even if its server refuses.
        try:
            self._start()
        except Exception as error:  # noqa: BLE001  (Prefect's API; asked again later)
            get_run_logger().warning("no lane could be started: %s", logged(str(error)))
            self._restarts += 1
        return True

    def _all_ended(self) -> str | None:
        """Return how the last lane ended if Prefect says that all have; None if it says nothing."""
        ending = None
        with suppress(Exception), get_client(sync_client=True) as client:
            for identity in self._flow_runs.values():
                state = client.read_flow_run(identity).state
                if state is None or not state.is_final():
                    return None
                ending = f"the last lane ended as {state.name}: {state.message or ''}".strip()
        return ending


def request_cancel(run: StoredRun) -> None:
    """Write CANCEL under the run: lanes look between items."""
    with suppress(EvalError):  # the store may be what failed
        run.request_cancel()
