"""A task run in a process of a Dask or Ray cluster: what is sent there, and what runs it there.

Prefect's own runners make two clients for the server in each task, and each of them reads the
certificates of all authorities: half of what a task costs. With Ray they also make a function for
each task, which a process fetches and loads. Here a process has one function, and each of its
threads one client.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast
from uuid import UUID, uuid4

from prefect import Task
from prefect.client.schemas.objects import State
from prefect.context import SyncClientContext, serialize_context
from prefect.plugins import load_prefect_collections
from prefect.task_engine import run_task_sync


def task_call(task: Task[..., Any], parameters: Mapping[str, Any]) -> tuple[UUID, dict[str, Any]]:
    """Return the id of a new task run, and the arguments of `run_called_task` that run it.

    The parameters are values, no results of other tasks.
    """
    task_run_id = uuid4()
    inputs: dict[str, set[Any]] = {name: set() for name in parameters}
    context = serialize_context(
        asset_ctx_kwargs={
            "task": task,
            "task_run_id": task_run_id,
            "task_inputs": inputs,
            "copy_to_child_ctx": True,
        }
    )
    return task_run_id, {
        "task": task,
        "task_run_id": task_run_id,
        "parameters": dict(parameters),
        "dependencies": inputs,
        "context": context,
    }


def run_called_task(**call: Any) -> State[Any]:
    """Run a task and return its state; this thread keeps its client for the tasks that follow."""
    if SyncClientContext.get() is None:
        SyncClientContext().__enter__()
    return cast("State[Any]", run_task_sync(**call, return_type="state"))


def load_tasks() -> None:
    """Load what the first shard of this process needs."""
    import_module("flows.tasks")
    import_module("evalcore.sql.rows")
    load_prefect_collections()
