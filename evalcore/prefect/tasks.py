"""Shards as Prefect tasks: a name, retries and a state around `execute_shard`."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import Any, cast

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Cancelled, Completed, Failed

from evalcore.errors import EvalError, ExitCode, StoreError
from evalcore.execution.rates import FIRST
from evalcore.execution.worker import OpenRun, ShardReceipt, Stopped
from evalcore.model.run import Plan
from evalcore.pipeline import session
from evalcore.pipeline.executors import Ended
from evalcore.pipeline.plan import is_instant
from evalcore.pipeline.process import ProcessDiedError
from evalcore.pipeline.session import ExecuteOptions, ShardCall
from evalcore.planning.shards import SINGLE_ITEM_LIMIT
from evalcore.prefect.publish import RunProgress, covered
from evalcore.prefect.task_runners import MOST_THREADS, ShardRunner
from evalcore.report.escape import inert_message
from evalcore.storage.runs import StoredRun

_RETRY_DELAYS_S = [1.0, 5.0]

# A server keeps the history of about 35 task runs a second; so many at once it takes in its stride.
_BURST = 100
_STARTS_PER_S = 30.0

# While one shard is committed and one drains, the items of a third one begin.
SHARDS_AHEAD = 3
RATES = "prefect"
"""What keeps providers' rates for all processes (entry points `evalcore.rate_limits`)."""

_FAILED = {"failed": "CaseFailed", "blocked": "CaseBlocked", "error": "CaseInError"}


def is_storage_fault(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether the store failed, which may pass; nothing else is worth a second attempt."""
    return isinstance(state.result(raise_on_failure=False), StoreError)


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
) -> ShardReceipt | None:
    """Execute one shard of the run and return its receipt.

    The state of a shard that was left because the run was stopped is `Cancelled`. A task run of a
    single item whose case failed is `Failed`, with a name that says how; it is not tried again.
    """
    with covered():
        ended = session.execute_shard(call)
    # Prefect takes a state for the value that it holds.
    if isinstance(ended, Stopped):
        return cast("None", Cancelled(message="the run was stopped"))
    if ended.ended in _FAILED:
        return cast("ShardReceipt", Failed(name=_FAILED[ended.ended], data=ended))
    if ended.ended == "skipped":
        return cast("ShardReceipt", Completed(name="CaseSkipped", data=ended))
    return ended


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
    """Executes shards as Prefect tasks of a `runner` (`pipeline.executors.Executor`).

    To be made and called in a flow's thread, as what the tasks belong to. `progress` is told what
    is committed.
    """

    def __init__(
        self, opened: OpenRun, options: ExecuteOptions, runner: ShardRunner, progress: RunProgress
    ) -> None:
        self._runner, self._opened, self._stopper = runner, opened, options.stopper
        self._progress = progress
        definition = opened.shards.run.definition
        self._concurrency = options.concurrency or definition.limits.concurrency or FIRST
        self._is_instant = is_instant(definition)
        self._name = shard_namer(opened.shards.run, opened.shards.plan)
        self._began = time.monotonic()
        self._submitted = 0
        self._is_closed = False
        self._pending: dict[Future[Ended], int] = {}

    @property
    def slots(self) -> int:
        """As many shards as use all places of items in each process; each of them has a thread."""
        # Shards that wait for nothing would only take the interpreter from each other.
        limit = 0 if self._is_instant else self._opened.limit or self._concurrency
        size = max(1, self._opened.shards.plan.shard_size)
        at_once = min(MOST_THREADS, SHARDS_AHEAD + limit // size)
        return min(self._runner.slots, self._runner.processes * at_once)

    def submit(self, call: ShardCall) -> Future[Ended]:
        """Begin a shard as a task run; wait as long as the server needs to keep its history."""
        ended: Future[Ended] = Future()
        plan = self._opened.shards.plan
        shard = plan.shard_of(call.first_item)
        self._wait_for_turn()
        if self._stopper.draining:
            ended.set_result(Stopped(shard))
            return ended
        call = call._replace(processes=self._runner.processes, rates=RATES)
        task_run = self._runner.submit(
            execute_shard, {"call": call, "name": self._name(plan, shard)}
        )
        self._submitted += 1

        self._pending[ended] = shard

        def pass_on(done: Future[Any]) -> None:
            outcome = self._outcome(shard, done)
            if isinstance(outcome, ShardReceipt):
                self._progress.add(outcome.items)
            self._pending.pop(ended, None)
            with suppress(InvalidStateError):  # it was given up
                if isinstance(outcome, BaseException):
                    ended.set_exception(outcome)
                else:
                    ended.set_result(outcome)

        task_run.add_done_callback(pass_on)
        return ended

    def _outcome(self, shard: int, done: Future[Any]) -> Ended | BaseException:
        try:
            return outcome_of(shard, done.result())
        except self._runner.deaths as lost:
            return ProcessDiedError(f"an exit code that nobody tells ({type(lost).__name__})")
        except CancelledError:
            return Stopped(shard)
        except BaseException as error:  # noqa: BLE001 - raised by the shard's future
            return error

    def _wait_for_turn(self) -> None:
        due = self._began + max(0, self._submitted - _BURST) / _STARTS_PER_S
        time.sleep(max(0.0, due - time.monotonic()))

    def close(self, *, cancel: bool) -> None:
        """Wait for the task runs; give them up if they are to be cancelled."""
        if cancel:
            self._opened.stop()
        if not self._is_closed:
            self._is_closed = True
            self._runner.close()
        for ended, shard in tuple(self._pending.items()):
            with suppress(InvalidStateError):
                ended.set_result(Stopped(shard))


def shards_at_once(concurrency: int, shard_size: int) -> int:
    """Return how many shards a machine begins at once, so that all places of items are used."""
    return SHARDS_AHEAD + 2 * (concurrency or FIRST) // shard_size


def outcome_of(shard: int, state: State[Any]) -> Ended:
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


def shard_namer(run: StoredRun, plan: Plan) -> Callable[[Plan, int], str]:
    """Return what names a shard of a plan by the cases that it holds: `cases 0041–0060`.

    A shard of a single item has the names of its case and variant, and its iteration. The plan
    that is given to a call may be the one that the pilot has settled.
    """
    cases: list[str] = []
    if plan.shard_size == 1 and plan.items <= SINGLE_ITEM_LIMIT:
        cases = [case.id for part in range(plan.parts) for case in run.cases(part, plan)]
    digits = max(4, len(str(plan.cases)))

    def name(plan: Plan, shard: int) -> str:
        items = plan.shard_items(shard)
        first, repetition = divmod(items[0], plan.items_per_case)
        last = items[-1] // plan.items_per_case
        if not cases or len(items) > 1:
            span = f"case {first + 1:0{digits}}"
            if last > first:
                span = f"cases {first + 1:0{digits}}–{last + 1:0{digits}}"
            iteration = f", iteration {repetition % plan.iterations + 1}"
            return span + (iteration if plan.by_round else "")
        variant, iteration_number = divmod(repetition, plan.iterations)
        text = cases[first]
        if plan.variants > 1:
            text += f" [{run.definition.variants[variant].id}]"
        if plan.iterations > 1:
            text += f" iteration {iteration_number + 1}"
        return inert_message(" ".join(text.split()))

    return name
