"""The flow `compact`: the history's tables are brought up to date and kept in large files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import BaseModel, ConfigDict, Field

from evalcore.errors import EvalError
from evalcore.history.compaction import Compacted, compact
from evalcore.history.sync import Synced, sync
from evalcore.mistakes.wording import counted
from evalcore.prefect import states
from evalcore.prefect.parameters import (
    StoreAddress,
    permitted_store,
    takes_parameters,
    this_worker,
)
from evalcore.prefect.publish import best_effort, logged

LEAST_AGE_DAYS = 7


class CompactParameters(BaseModel):
    """Which store is compacted. Flat, with literal defaults, as `EvaluateParameters`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: StoreAddress = ""
    drop_results_older_than_days: Annotated[
        int | None,
        Field(
            ge=LEAST_AGE_DAYS,
            description="Delete the raw results of runs that ended longer ago, if their rows are "
            "in the history; empty deletes none. Manifests, plans and reports stay.",
            examples=[90],
        ),
    ] = None


@flow(
    name="compact",
    description="Bring the history up to date and make its small files large ones.",
    persist_result=False,
)
@takes_parameters(CompactParameters)
def compact_history(**fields: Any) -> State[Any]:
    """Bring the history up to date and make its small files large ones."""
    parameters = CompactParameters(**fields)
    age, before = parameters.drop_results_older_than_days, None
    if age is not None:
        before = datetime.now(UTC) - timedelta(days=age)
    try:
        store = permitted_store(parameters.store, this_worker().settings)
        synced = sync(store)
        done = compact(store, drop_results_before=before)
    except EvalError as error:
        return states.refused(error)
    warn_of_damaged(synced)
    return Completed(message=_summary(synced, done))


def sync_history(address: str) -> None:
    """Bring the history of a store up to date; what fails is logged."""
    with best_effort("bring the history up to date"):
        warn_of_damaged(sync(permitted_store(address, this_worker().settings)))


def warn_of_damaged(synced: Synced) -> None:
    """Log the runs that a sync has left out."""
    for run_id, reason in synced.damaged.items():
        get_run_logger().warning("run %s is damaged: %s", run_id, logged(reason))


def _summary(synced: Synced, done: Compacted) -> str:
    before = sum(table.files_before for table in done.tables)
    after = sum(table.files_after for table in done.tables)
    text = f"{counted(synced.total, 'run')} in the history, {counted(before, 'file')} → {after}"
    if done.dropped:
        text += f", results of {counted(len(done.dropped), 'run')} dropped"
    return text
