"""The run that a flow run had before it was retried."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from prefect import runtime
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.sorting import FlowRunSort
from prefect.context import FlowRunContext

from evalcore.prefect.publish import RUN_LABEL, STORE_LABEL
from evalcore.storage.store import ObjectStore


def earlier_run(store: ObjectStore) -> str | None:
    """Return the id of the run that this flow run had before it was retried; None for the first.

    A flow run that is retried goes on with its run; a completed one is published again. A night
    that is retried starts new flow runs for suites that have ended: theirs is the run of the flow
    run before them.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return None
    own = _labelled_run(context.flow_run, store)
    if own is not None or context.flow_run.parent_task_run_id is None:
        return own
    earlier = (_labelled_run(each, store) for each in _earlier_of_suite(context.flow_run))
    return next((run for run in earlier if run is not None), None)


def _labelled_run(flow_run: FlowRun, store: ObjectStore) -> str | None:
    labels: dict[str, Any] = flow_run.labels
    if labels.get(STORE_LABEL) != store.url or RUN_LABEL not in labels:
        return None
    return str(labels[RUN_LABEL])


def _earlier_of_suite(flow_run: FlowRun) -> list[FlowRun]:
    """Return what a night that is retried called with the same parameters before, newest first."""
    parent = runtime.flow_run.parent_flow_run_id
    if parent is None:
        return []
    of_night = FlowRunFilter(parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[UUID(parent)]))
    with get_client(sync_client=True) as client:
        night = client.read_flow_run(UUID(parent))
        if (night.run_count or 0) < 2 or night.state is None:
            return []
        attempt_began = night.state.timestamp
        started = client.read_flow_runs(flow_run_filter=of_night, sort=FlowRunSort.START_TIME_DESC)
    return [
        each
        for each in started
        if each.parameters == flow_run.parameters
        and each.start_time is not None
        and each.start_time < attempt_began
    ]
