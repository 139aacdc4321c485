"""The shards of a run as tasks of a Dask or Ray cluster: submitted, attended through the store."""

from __future__ import annotations

import asyncio
import queue
import time
from collections import deque
from collections.abc import Sequence
from concurrent import futures
from functools import partial
from typing import Any, Final

from evalcore.execution.lanes.claims import EXPIRED_AFTER_LEASES, RENEWALS
from evalcore.execution.stored_shards import ShardReceipt
from evalcore.pipeline.silence import Silence
from prefect.futures import PrefectFuture

from evalcore.errors import EvalError, ObjectNotFoundError, StoreError, WorkersFailedError
from evalcore.execution.shared import decode_limits, process_name
from evalcore.storage.runs import StoredRun
from flows.clusters import ShardCluster
from flows.execution import FlowExecution
from flows.lanes import request_cancel
from flows.publish import RunProgress
from flows.shard_workers import IDLE_S
from flows.task_run_ends import TaskRunEnds
from flows.tasks import execute_assigned_shard, wait_for_turn

# Tasks that the scheduler has for each that it executes: none waits for this process.
_AHEAD: Final = 2
_LOOK_S: Final = 1.0
_LEAVING_S: Final = 5.0 + IDLE_S
_LEAVING_LOOK_S: Final = 0.1
# A worker that hangs is replaced before the run counts as silent.
_SILENT_AFTER_LEASES: Final = EXPIRED_AFTER_LEASES + 1


def run_on_cluster(
    cluster: ShardCluster,
    ends: TaskRunEnds,
    execution: FlowExecution,
    shards: Sequence[int],
    progress: RunProgress,
) -> None:
    """Execute shards as tasks of a cluster, and return when each has ended; note it in `ends`.

    Raises `WorkersFailedError` once every shard was tried if some have no result, `StalledError`
    if no worker shows a sign of life, and at once what a worker refuses the run with.
    """
    attended = _ClusterShards(cluster, ends, execution, shards, progress)
    attended.run()
    attended.raise_failures()


class _ClusterShards:
    def __init__(
        self,
        cluster: ShardCluster,
        ends: TaskRunEnds,
        execution: FlowExecution,
        shards: Sequence[int],
        progress: RunProgress,
    ) -> None:
        self._cluster, self._execution, self._progress = cluster, execution, progress
        self._ends = ends
        self._run, self._shards = execution.run, tuple(shards)
        self._name = execution.namer()
        self._waiting = deque(shards)
        self._in_flight: set[int] = set()
        self._ended: queue.SimpleQueue[tuple[int, PrefectFuture[Any]]] = queue.SimpleQueue()
        self._failures: list[Exception] = []
        self._began = time.monotonic()
        self._submitted = 0
        settings = execution.settings
        self._silence = Silence(
            self._run,
            settings.stall_s,
            _SILENT_AFTER_LEASES * settings.lease_s,
            waits_for=self._describe_cluster,
        )
        self._lease_s = settings.lease_s
        self._looked = self._looked_for_silent = self._began

    def run(self) -> None:
        """Submit all and attend them; after a stop, those that were submitted."""
        try:
            while (self._waiting or self._in_flight) and not self._execution.left:
                self._submit()
                self._attend()
                self._replace_silent()
                if self._is_stopped():
                    self._waiting.clear()
        # Workers elsewhere hear of it through the store alone.
        except BaseException:
            request_cancel(self._run)
            raise
        self._progress.show(self._execution.executed_items, now=True)

    def _is_stopped(self) -> bool:
        if self._execution.stopped:
            request_cancel(self._run)
            return True
        now = time.monotonic()
        if now - self._looked < _LOOK_S:
            return False
        self._looked = now
        return self._run.is_cancel_requested()

    def _submit(self) -> None:
        room = _AHEAD * max(1, self._cluster.slots) - len(self._in_flight) if self._waiting else 0
        for _ in range(min(room, len(self._waiting))):
            wait_for_turn(self._submitted, self._began)
            shard = self._waiting.popleft()
            task = execute_assigned_shard.with_options(task_run_name=_escaped(self._name(shard)))
            parameters = {
                "run_id": self._run.run_id,
                "shard": shard,
                "store": self._run.store.url,
            }
            future = self._cluster.submit(task, parameters)
            self._ends.note_submitted(future.task_run_id, shard)
            self._submitted += 1
            self._in_flight.add(shard)
            future.add_done_callback(partial(self._note_end, shard))

    def _note_end(self, shard: int, future: PrefectFuture[Any]) -> None:
        self._ended.put((shard, future))

    def _attend(self) -> None:
        """Take what has ended; raise `StalledError` if nothing has for long and no worker lives."""
        try:
            shard, future = self._ended.get(timeout=min(_LOOK_S, self._lease_s / RENEWALS))
        except queue.Empty:
            self._silence.check(lambda: request_cancel(self._run))
            return
        self._in_flight.discard(shard)
        end = self._note_task_end(future)
        if isinstance(end, ShardReceipt):
            self._execution.note_committed(end)
        elif isinstance(end, Exception):
            self._failures.append(end)
            if isinstance(end, EvalError) and not isinstance(end, StoreError):
                self._waiting.clear()  # each worker would refuse the run
        done = self._execution.executed_items
        self._silence.note_items(done)
        self._progress.show(done)

    def _note_task_end(self, future: PrefectFuture[Any]) -> object:
        """Return what a task returned, or the exception that it or its scheduler ended with."""
        try:
            end: object = future.result(timeout=_LOOK_S, raise_on_failure=False)
        except (futures.CancelledError, asyncio.CancelledError):
            end = StoreError("the cluster's scheduler is gone, or it has cancelled the tasks")
        # The scheduler's own: the worker died too often.
        except Exception as error:  # noqa: BLE001
            end = error
        else:
            self._ends.note_state(future.task_run_id, future.state)
            return end
        self._ends.note_failure(future.task_run_id, end)
        return end

    def _replace_silent(self) -> None:
        """Let others execute the shards of workers that hang, as lanes do with expired leases."""
        now = time.monotonic()
        if now - self._looked_for_silent < self._lease_s / RENEWALS:
            return
        self._looked_for_silent = now
        after_s = EXPIRED_AFTER_LEASES * self._lease_s
        for worker in self._cluster.restart_silent(after_s, self._in_flight):
            self._execution.warn(
                f"worker {worker} has shown no sign of life for {after_s:g} s: "
                "its shards are executed by others"
            )

    def _describe_cluster(self) -> str:
        slots = self._cluster.slots
        if not slots:
            return "the cluster has no workers"
        return f"the cluster has {slots} slots for tasks; the logs of its workers say more"

    def raise_failures(self) -> None:
        """Raise if a shard has no result although the run was not stopped."""
        if not self._failures or self._execution.stopped or self._execution.left:
            return
        if self._run.is_cancel_requested():
            return
        lost = len(set(self._shards) - self._run.written_shards())
        if not lost:
            return
        first = self._failures[0]
        if isinstance(first, EvalError) and not isinstance(first, StoreError):
            raise first
        reason = str(first) if isinstance(first, EvalError) else f"{type(first).__name__}: {first}"
        message = f"{lost} of {len(self._shards)} shards could not be executed: {reason}"
        raise WorkersFailedError(self._run.run_id, message) from first


def _escaped(name: str) -> str:
    """Return a name that Prefect does not take for a template of its parameters."""
    return name.replace("{", "{{").replace("}", "}}")


def wait_until_left(run: StoredRun) -> None:
    """Return when no other process has a block of the run's budget, or after some seconds.

    What a process that ends at once had of a budget would count as spent.
    """
    deadline = time.monotonic() + _LEAVING_S
    while time.monotonic() < deadline:
        try:
            limits = decode_limits(run.store.get(run.keys.limits).data, run.keys.limits)
        except ObjectNotFoundError:
            return
        own = process_name()
        others = [block for name, block in limits.living if not name.startswith(own)]
        if all(block.is_settled for block in others):
            return
        time.sleep(_LEAVING_LOOK_S)
