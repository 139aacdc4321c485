"""Prefect tasks: a name and a retry policy around what the pipeline does."""

from __future__ import annotations

from typing import Any, cast

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Cancelled, Completed

from evalcore.errors import StoreError
from evalcore.execution.stored_shards import ShardReceipt
from flows.covering import covered
from flows.execution import FlowExecution

_RETRY_DELAYS_S = [1.0, 5.0]


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
    # Prefect takes a state for the value that it holds.
    if receipt is None:
        return cast("None", Cancelled(message="the run was stopped"))
    ended = _STATES.get(execution.item_ends.get(shard, ""))
    if ended is None:
        return receipt
    return cast("ShardReceipt", Completed(name=ended, data=receipt))


_STATES = {
    "failed": "CaseFailed",
    "blocked": "CaseBlocked",
    "error": "CaseInError",
    "skipped": "CaseSkipped",
    "cancelled": "CaseCancelled",
}
