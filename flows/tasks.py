"""Prefect tasks: a name and a retry policy around what the pipeline does."""

from __future__ import annotations

import time
from typing import Any, cast

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.settings import get_current_settings
from prefect.states import Cancelled, Completed

from evalcore.errors import StoreError, UsageError
from evalcore.execution.shards import ShardReceipt
from flows.covering import covered
from flows.execution import FlowExecution
from flows.shard_workers import open_runs

_RETRY_DELAYS_S = [1.0, 5.0]

# A server keeps the history of about 35 task runs a second; so many at once it takes in its stride.
_BURST = 100
_STARTS_PER_S = 30.0


def wait_for_turn(number: int, began: float) -> None:
    """Wait until task run `number` of those begun at `began` (monotonic) may be submitted."""
    due = began + max(0, number - _BURST) / _STARTS_PER_S
    time.sleep(max(0.0, due - time.monotonic()))


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
    execution: FlowExecution,
    shard: int,
    name: str,  # noqa: ARG001  (Prefect names the task run with it)
) -> ShardReceipt | None:
    """Execute one shard of the run and return its receipt.

    The state of a shard that was left because the run was stopped is `Cancelled`. The state of a
    task run of a single work item has the name of what became of it. It is of type
    `COMPLETED` all the same: a case that failed was executed, and is not tried again.
    """
    with covered():
        receipt = execution.execute(shard)
    return _ended(receipt, execution.item_ends.get(shard, ""))


@task(
    name="execute_shard",
    retries=len(_RETRY_DELAYS_S),
    retry_delay_seconds=_RETRY_DELAYS_S,
    retry_jitter_factor=0.3,
    retry_condition_fn=is_storage_fault,
    cache_policy=NO_CACHE,
    persist_result=False,
)
def execute_assigned_shard(run_id: str, shard: int, store: str) -> ShardReceipt | None:
    """Execute a shard in a process of a Dask or Ray cluster, as `execute_shard` does in this one.

    A shard that has a result already ends `Completed`.
    """
    if get_current_settings().api.url is None:
        raise UsageError(
            "a worker of the cluster has no PREFECT_API_URL in its environment: it cannot say how "
            "its tasks end"
        )
    with covered(), open_runs().opened(run_id, store) as shards:
        receipt, item_end = shards.execute(shard)
        if receipt is None and not shards.stopped:
            message = "another process has committed it"
            return cast("None", Completed(message=message, data=None))
    return _ended(receipt, item_end)


def _ended(receipt: ShardReceipt | None, item_end: str) -> ShardReceipt | None:
    """Return a receipt as what a task returns: the state that says how the shard ended."""
    # Prefect takes a state for the value that it holds.
    if receipt is None:
        return cast("None", Cancelled(message="the run was stopped"))
    name = _STATES.get(item_end)
    if name is None:
        return receipt
    return cast("ShardReceipt", Completed(name=name, data=receipt))


_STATES = {
    "failed": "CaseFailed",
    "blocked": "CaseBlocked",
    "error": "CaseInError",
    "skipped": "CaseSkipped",
    "cancelled": "CaseCancelled",
}
