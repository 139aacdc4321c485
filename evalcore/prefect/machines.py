"""Several machines for one run: ranges of its shards as flow runs of `evaluate-shards`.

The flow run that was started coordinates. Its work pool's machines execute ranges of shards, each a
flow run of its own, and commit them; what is committed is read from the store.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Cancelling

from evalcore.errors import StoreError, UsageError
from evalcore.execution.worker import OpenRun, ShardReceipt, Stopped
from evalcore.isolation.pool import ProcessDiedError
from evalcore.pipeline.executors import Ended, InlineExecutor
from evalcore.pipeline.plan import DEFAULT_CONCURRENCY
from evalcore.pipeline.session import ExecuteOptions, ShardCall
from evalcore.prefect.publish import RunProgress, logged
from evalcore.prefect.tasks import shards_at_once

DEPLOYMENT: Final = "evaluate-shards/evaluate-shards"
# A range is at least so much work for one machine, which takes half a minute to begin.
RANGE_S: Final = 300.0
# A full work pool must not let the run wait for itself.
START_S: Final = 120.0
_LOOK_S: Final = 2.0
# Of an item, where no run of the suite has shown it.
_LATENCY_S: Final = 1.0
# So many ranges that end without any result: others would, too.
_FRUITLESS: Final = 3


@dataclass
class _Range:
    """Shards that a flow run executes; `since` is when it was submitted."""

    flow_run: UUID
    shards: tuple[int, ...]
    since: float
    has_begun: bool = False


class MachinesExecutor:
    """Keeps `machines` flow runs of `evaluate-shards` in flight (`pipeline.executors.Executor`).

    A range that ends without all of its results is submitted again. If no flow run begins within
    two minutes, three end without any result, or the server is away for two minutes, this process
    executes the shards itself.
    """

    def __init__(
        self, opened: OpenRun, options: ExecuteOptions, machines: int, progress: RunProgress
    ) -> None:
        """Take a run that is open in this process. Raises `UsageError` without the deployment."""
        self._opened, self._options, self._progress = opened, options, progress
        self._machines = machines
        self._inline = InlineExecutor(opened, options.concurrency)
        # A future that has ended calls back in the thread that holds the lock.
        self._lock = threading.RLock()
        self._futures: dict[int, Future[Ended]] = {}
        self._calls: dict[int, ShardCall] = {}
        self._waiting: deque[int] = deque()
        self._ranges: list[_Range] = []
        self._begun = self._fruitless = 0
        self._unchanged = 0
        self._is_alone = False
        self._ended = threading.Event()
        with get_client(sync_client=True) as client:
            try:
                self._deployment = client.read_deployment_by_name(DEPLOYMENT).id
            except ObjectNotFound:
                raise UsageError(
                    f"Prefect has no deployment '{DEPLOYMENT}', which machines need: `evalcore "
                    "deploy` registers it"
                ) from None
        # Which server it is stands in the context.
        context = copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(self._look), name="machines", daemon=True
        )
        self._thread.start()

    @property
    def _range_shards(self) -> int:
        """How many shards are five minutes of work for one machine."""
        run, plan = self._opened.shards.run, self._opened.shards.plan
        latency_s = run.known_manifest().settings.get("latency_s")
        latency_s = _LATENCY_S if latency_s is None else latency_s
        concurrency = self._options.concurrency or run.definition.limits.concurrency
        per_s = (concurrency or DEFAULT_CONCURRENCY) / max(latency_s, 0.001)
        return max(1, math.ceil(RANGE_S * per_s / plan.shard_size))

    @property
    def slots(self) -> int:
        """The shards of all machines' ranges, and of one range that is gathered."""
        return (self._machines + 1) * self._range_shards

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Let a shard wait for its range; the pilot, and what is alone, is executed here."""
        plan = self._opened.shards.plan
        shard = plan.shard_of(call.first_item)
        if not plan.settled:
            return self._inline.submit(call)
        future: Future[Ended] = Future()
        with self._lock:
            self._futures[shard] = future
            self._calls[shard] = call
            self._waiting.append(shard)
            self._unchanged = 0
        return future

    def close(self, *, cancel: bool) -> None:
        """Wait for what runs, or cancel the flow runs of ranges."""
        was_ended = self._ended.is_set()
        self._ended.set()
        if was_ended or not cancel:
            return
        self._inline.close(cancel=True)
        with suppress(Exception), get_client(sync_client=True) as client:
            for each in self._ranges:
                _cancel(client, each.flow_run)
        with self._lock:
            for shard in list(self._futures):
                self._resolve(shard, Stopped(shard))

    # In the thread

    def _look(self) -> None:
        answered = time.monotonic()
        while not self._ended.wait(_LOOK_S):
            try:
                self._settle_committed()
                with get_client(sync_client=True) as client:
                    self._look_at_ranges(client)
                    self._begin_ranges(client)
                answered = time.monotonic()
            except Exception as error:  # noqa: BLE001 - the server or the store, which may come back
                self._options.warn(f"could not look after the machines: {logged(str(error))}")
                if not self._is_alone and time.monotonic() - answered > START_S:
                    self._leave_machines()
            if self._is_alone:
                self._execute_here()

    def _settle_committed(self) -> None:
        with suppress(StoreError):
            written = set(self._opened.shards.run.written_shards())
            with self._lock:
                for shard in written.intersection(self._futures):
                    items = len(self._opened.shards.plan.shard_items(shard))
                    self._progress.add(items)
                    self._resolve(shard, ShardReceipt(shard, items, True))

    def _look_at_ranges(self, client: SyncPrefectClient) -> None:
        for each in list(self._ranges):
            state = client.read_flow_run(each.flow_run).state
            if state is None:
                continue
            each.has_begun = each.has_begun or state.is_running()
            if not state.is_final():
                continue
            self._settle_committed()
            self._ranges.remove(each)
            self._again(client, each, state)
        overdue = time.monotonic() - START_S
        if self._ranges and all(
            not each.has_begun and each.since < overdue for each in self._ranges
        ):
            self._go_alone(client, f"has begun in {START_S:.0f} s")

    def _go_alone(self, client: SyncPrefectClient, reason: str) -> None:
        message = f"no flow run of {DEPLOYMENT} {reason}: this process executes the shards itself"
        self._options.warn(message)
        self._is_alone = True
        for each in self._ranges:
            _cancel(client, each.flow_run)

    def _leave_machines(self) -> None:
        """Execute what no machine has committed, here: a server that is gone tells of none."""
        self._options.warn("the server stays away: this process executes the shards itself")
        with self._lock:
            for each in self._ranges:
                self._waiting.extend(shard for shard in each.shards if shard in self._futures)
            self._ranges.clear()
        self._is_alone = True

    def _again(self, client: SyncPrefectClient, ended: _Range, state: State[object]) -> None:
        """Let what a range has not committed be executed again; a death counts for what began."""
        reason = logged(state.message or state.name or "").partition(". ")[0]
        with self._lock:
            left = [shard for shard in ended.shards if shard in self._futures]
            self._fruitless = self._fruitless + 1 if len(left) == len(ended.shards) else 0
            if state.is_crashed():
                # A machine begins them in their order: these may have been in flight.
                call = self._calls[ended.shards[0]]
                count = shards_at_once(call.concurrency, self._opened.shards.plan.shard_size)
                for shard in left[:count]:
                    died = ProcessDiedError(f"flow run {ended.flow_run}: {reason}")
                    self._futures.pop(shard).set_exception(died)
                left = left[count:]
            self._waiting.extendleft(reversed(left))
        if self._fruitless >= _FRUITLESS:
            self._go_alone(client, f"has any result (the last one ended with: {reason})")

    def _begin_ranges(self, client: SyncPrefectClient) -> None:
        while not self._is_alone and len(self._ranges) < self._machines:
            with self._lock:
                # Shards come one after another while others are committed: gather a range of them.
                is_whole = len(self._waiting) >= self._range_shards
                self._unchanged += 1
                if not self._waiting or not (is_whole or self._unchanged > 2):
                    return
                count = min(len(self._waiting), self._range_shards)
                shards = tuple(self._waiting.popleft() for _ in range(count))
            try:
                self._ranges.append(self._begin(client, shards))
            except Exception:  # whatever it was, the shards wait for the next look
                with self._lock:
                    self._waiting.extendleft(reversed(shards))
                raise

    def _begin(self, client: SyncPrefectClient, shards: Sequence[int]) -> _Range:
        call = self._calls[shards[0]]
        parameters = {
            "store": call.store,
            "run": call.run_id,
            "epoch": call.epoch,
            "engine_version": call.engine_version,
            "shards": list(shards),
            "concurrency": call.concurrency or None,
            "machines": self._machines,
        }
        flow_run = client.create_flow_run_from_deployment(
            self._deployment,
            parameters=parameters,
            name=f"{call.run_id} shards {min(shards)}–{max(shards)}",
            # A range whose answer was lost is not begun twice.
            idempotency_key=f"{call.run_id}-{call.epoch}-{self._begun}-{shards[0]}-{len(shards)}",
        )
        self._begun += 1
        return _Range(flow_run.id, tuple(shards), time.monotonic())

    def _execute_here(self) -> None:
        with self._lock:
            running = len(self._futures) - len(self._waiting)
            while self._waiting and running < self._inline.slots:
                shard, running = self._waiting.popleft(), running + 1
                done = self._inline.submit(self._calls[shard])
                done.add_done_callback(partial(self._done_here, shard))

    def _done_here(self, shard: int, done: Future[Ended]) -> None:
        with self._lock:
            future = self._futures.pop(shard, None)
        if future is None:
            return
        if (error := done.exception()) is not None:
            future.set_exception(error)
            return
        ended = done.result()
        self._progress.add(ended.items if isinstance(ended, ShardReceipt) else 0)
        future.set_result(ended)

    def _resolve(self, shard: int, ended: Ended) -> None:
        future = self._futures.pop(shard, None)
        with suppress(ValueError):
            self._waiting.remove(shard)
        if future is not None:
            future.set_result(ended)


def _cancel(client: SyncPrefectClient, flow_run: UUID) -> None:
    """Cancel a flow run: at once if no process has begun it."""
    state = client.read_flow_run(flow_run).state
    if state is None or state.is_final():
        return
    begun = state.type in (StateType.RUNNING, StateType.CANCELLING)
    ended: State[object] = Cancelling() if begun else Cancelled(message="the run goes on without")
    client.set_flow_run_state(flow_run, ended)
