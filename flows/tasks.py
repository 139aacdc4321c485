"""Prefect tasks: a name and a retry policy around what the pipeline does."""

from __future__ import annotations

from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun

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
def execute_shard(execution: FlowExecution, shard: int, name: str) -> ShardReceipt | None:  # noqa: ARG001  (Prefect names the task run with it)
    """Execute one shard of the run and return its receipt; None if the run was stopped."""
    with covered():
        return execution.execute(shard)
