"""Shards as Prefect tasks: a name, retries and a state around `execute_shard`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, cast

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Cancelled, Completed
from prefect.task_runners import ThreadPoolTaskRunner

from evalcore.errors import EvalError, ExitCode, StoreError
from evalcore.execution.adaptive import FIRST
from evalcore.execution.row import ItemEnd
from evalcore.execution.shards import ShardReceipt
from evalcore.execution.worker import OpenRun, Stopped
from evalcore.pipeline import session
from evalcore.pipeline.executors import Ended
from evalcore.pipeline.plan import is_instant
from evalcore.pipeline.session import ExecuteOptions, ShardCall
from evalcore.planning.shards import SINGLE_ITEM_LIMIT
from evalcore.prefect.covering import covered
from evalcore.prefect.publish import RunProgress
from evalcore.report.escape import inert_message

_RETRY_DELAYS_S = [1.0, 5.0]

# A server keeps the history of about 35 task runs a second; so many at once it takes in its stride.
_BURST = 100
_STARTS_PER_S = 30.0

_MOST_THREADS = 64
# While one shard is committed and one drains, the items of a third one begin.
_SHARDS_AHEAD = 3

_STATES = {
    "failed": "CaseFailed",
    "blocked": "CaseBlocked",
    "error": "CaseInError",
    "skipped": "CaseSkipped",
    "cancelled": "CaseCancelled",
}


class ItemEnds:
    """What became of the items of a small run, by their numbers."""

    def __init__(self) -> None:
        self._ends: dict[int, str] = {}

    def note(self, finished: ItemEnd) -> None:
        """Note an item that has ended."""
        self._ends[finished.number] = str(finished.outcome or finished.status)

    def state_of(self, call: ShardCall) -> str | None:
        """Return the name of the state of a task run of one item; None for `Completed`."""
        return _STATES.get(self._ends.get(call.first_item, "")) if call.items == 1 else None


def is_storage_fault(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether the store failed, which may pass; nothing else is worth a second attempt."""
    failure = state.result(raise_on_failure=False)
    return isinstance(failure, StoreError)


@task(
    task_run_name="{name}",
    retries=len(_RETRY_DELAYS_S),
    retry_delay_seconds=_RETRY_DELAYS_S,
    retry_jitter_factor=0.3,
    retry_condition_fn=is_storage_fault,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def execute_shard(
    call: ShardCall,
    name: str,  # noqa: ARG001  (Prefect names the task run with it)
    ends: ItemEnds,
) -> ShardReceipt | None:
    """Execute one shard of the run and return its receipt.

    The state of a shard that was left because the run was stopped is `Cancelled`. The state of a
    task run of a single work item has the name of what became of it. It is of type
    `COMPLETED` all the same: a case that failed was executed, and is not tried again.
    """
    with covered():
        ended = session.execute_shard(call)
    # Prefect takes a state for the value that it holds.
    if isinstance(ended, Stopped):
        return cast("None", Cancelled(message="the run was stopped"))
    state_name = ends.state_of(call)
    if state_name is None:
        return ended
    return cast("ShardReceipt", Completed(name=state_name, data=ended))


class ShardFailedError(EvalError):
    """The store has failed a shard in each attempt of its task."""

    exit_code = ExitCode.ERRORS

    def __init__(self, shard: int, error: StoreError) -> None:
        super().__init__(shard, error)
        self.shard, self.error = shard, error

    def __str__(self) -> str:
        attempts = len(_RETRY_DELAYS_S) + 1
        return f"shard {self.shard} could not be executed in {attempts} attempts: {self.error}"


class TasksExecutor:
    """Executes shards as Prefect tasks in threads of this process (`pipeline.executors.Executor`).

    To be made and called in a flow's thread, as what the tasks belong to. `ends` are noted by the
    caller; `progress` is told what is committed.
    """

    def __init__(
        self, opened: OpenRun, options: ExecuteOptions, ends: ItemEnds, progress: RunProgress
    ) -> None:
        self._opened, self._stopper = opened, options.stopper
        self._ends, self._progress = ends, progress
        definition = opened.shards.run.definition
        self._concurrency = options.concurrency or definition.limits.concurrency or FIRST
        self._is_instant = is_instant(definition)
        self._name = _namer(opened)
        self._began = time.monotonic()
        self._submitted = 0
        self._runner = ThreadPoolTaskRunner[ShardReceipt | None](max_workers=_MOST_THREADS)
        self._runner.__enter__()
        self._is_closed = False

    @property
    def slots(self) -> int:
        """As many shards as use all places of items; each of them has a thread."""
        # Shards that wait for nothing would only take the interpreter from each other.
        limit = 0 if self._is_instant else self._opened.limit or self._concurrency
        size = max(1, self._opened.shards.plan.shard_size)
        return min(_MOST_THREADS, _SHARDS_AHEAD + limit // size)

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Begin a shard as a task run; wait as long as the server needs to keep its history."""
        ended: Future[Ended] = Future()
        shard = self._opened.shards.plan.shard_of(call.first_item)
        self._wait_for_turn()
        if self._stopper.draining:
            ended.set_result(Stopped(shard))
            return ended
        parameters = {"call": call, "name": self._name(shard), "ends": self._ends}
        task_run = self._runner.submit(execute_shard, parameters)
        self._submitted += 1

        def pass_on(done: Future[Any]) -> None:
            try:
                outcome = _outcome(shard, done.result())
            except CancelledError:
                ended.set_result(Stopped(shard))
            except BaseException as error:  # noqa: BLE001 - raised by the future
                ended.set_exception(error)
            else:
                if isinstance(outcome, ShardReceipt):
                    self._progress.add(outcome.items)
                ended.set_result(outcome)

        task_run.wrapped_future.add_done_callback(pass_on)
        return ended

    def _wait_for_turn(self) -> None:
        due = self._began + max(0, self._submitted - _BURST) / _STARTS_PER_S
        time.sleep(max(0.0, due - time.monotonic()))

    def close(self, *, cancel: bool) -> None:
        """Wait for the task runs; stop their items first if they are to be cancelled."""
        if cancel:
            self._opened.stop()
        if not self._is_closed:
            self._is_closed = True
            self._runner.__exit__(None, None, None)


def _outcome(shard: int, state: State[Any]) -> Ended:
    """Return how a shard ended, by the state of its task run; raise what its task raised."""
    if state.is_cancelled():
        return Stopped(shard)
    result = state.result(raise_on_failure=False)
    if isinstance(result, StoreError):
        # The task has tried it again: the coordinator does not.
        raise ShardFailedError(shard, result)
    if isinstance(result, BaseException):
        raise result
    return cast("ShardReceipt", result)


def _namer(opened: OpenRun) -> Callable[[int], str]:
    """Return what names shards: `shard-00042`, and its case where it is a single work item."""
    run, plan = opened.shards.run, opened.shards.plan

    def shard_name(shard: int) -> str:
        return f"shard-{shard:05d}"

    if plan.shard_size > 1 or plan.items > SINGLE_ITEM_LIMIT:
        return shard_name
    cases = [case for part in range(plan.parts) for case in run.cases(part, plan)]

    def item_name(shard: int) -> str:
        case, repetition = divmod(plan.shard_items(shard).start, plan.items_per_case)
        variant, iteration = divmod(repetition, plan.iterations)
        name = cases[case].id
        if plan.variants > 1:
            name += f" {run.definition.variants[variant].id}"
        if plan.iterations > 1:
            name += f" {iteration}"
        return f"{shard_name(shard)} {inert_message(' '.join(name.split()))}"

    return item_name
