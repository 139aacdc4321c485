"""The flow run of a command that was interrupted, and whose flow does not return in time.

A cluster takes longer to end than an interrupted command waits. What is still unfinished when the
process exits would stay `Running` on Prefect's server forever.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES
from prefect.settings.context import temporary_settings
from prefect.states import Cancelled

from flows import states
from flows.task_run_ends import unfinished_task_runs


def end_stopped(flow_run: UUID | None, run_id: str, *, within_s: float) -> None:
    """End a flow run and its unfinished task runs as `Cancelled`, as many as in so many seconds."""
    if flow_run is None:
        return
    until = time.monotonic() + within_s
    once = {PREFECT_CLIENT_MAX_RETRIES: 0, PREFECT_API_REQUEST_TIMEOUT: within_s}
    # A server that is away: the store says that the run was stopped.
    with suppress(Exception), temporary_settings(once), get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run, states.stopped(run_id), force=True)
        for task_run in unfinished_task_runs(client, flow_run):
            if time.monotonic() > until:
                break
            cancelled: State[Any] = Cancelled(message="the run was stopped")
            client.set_task_run_state(task_run.id, cancelled, force=True)


def leave_quietly() -> None:
    """Let the end of a process that cuts its flow off say nothing of what is cut off.

    Dask, for one, closes a cluster at the end of the process that the flow is closing just then.
    """
    sys.unraisablehook = _say_nothing


def _say_nothing(_: object) -> None:
    """Take what a function for the end of the process raises."""
