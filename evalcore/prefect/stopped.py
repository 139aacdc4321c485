"""The flow run of a command that was interrupted, and whose flow does not return in time.

A loaded server may take longer than an interrupted command waits. What is still unfinished when
the process exits would stay `Running` on Prefect's server forever.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    TaskRunFilter,
    TaskRunFilterFlowRunId,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, State, StateType, TaskRun
from prefect.settings import PREFECT_API_REQUEST_TIMEOUT, PREFECT_CLIENT_MAX_RETRIES
from prefect.settings.context import temporary_settings
from prefect.states import Cancelled

from evalcore.prefect import states

_UNFINISHED: Final = tuple(type_ for type_ in StateType if type_ not in TERMINAL_STATES)
# What the server returns at once.
_PAGE: Final = 200


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


def unfinished_task_runs(client: SyncPrefectClient, flow_run: UUID) -> list[TaskRun]:
    """Return the task runs of a flow run that have no final state."""
    of_flow_run = TaskRunFilter(
        flow_run_id=TaskRunFilterFlowRunId(any_=[flow_run]),
        state=TaskRunFilterState(type=TaskRunFilterStateType(any_=list(_UNFINISHED))),
    )
    unfinished: list[TaskRun] = []
    while len(unfinished) % _PAGE == 0:
        page = client.read_task_runs(
            task_run_filter=of_flow_run, limit=_PAGE, offset=len(unfinished)
        )
        if not page:
            break
        unfinished += page
    return unfinished
