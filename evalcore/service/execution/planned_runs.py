"""The engine's run of a row: planned under an id that is known before, taken up again, or ended.

The id is written into the row before the run is planned. So a worker that dies while it plans
leaves no run that nothing knows of: the next one takes up what is whole and cancels the rest.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from evalcore.errors import DamagedRunError, ObjectNotFoundError, RunConflictError
from evalcore.model.run import Manifest, State
from evalcore.pipeline.executors import Runner
from evalcore.pipeline.lease import read_lease
from evalcore.pipeline.states import cancel_run
from evalcore.service.execution.submitted_run import cancel_submitted
from evalcore.storage.layout import new_run_id
from evalcore.storage.runs import StoredRun, open_run
from evalcore.storage.store import ObjectStore


def new_engine_run() -> str:
    """Return the id of a run that is about to be planned."""
    return new_run_id(datetime.now(UTC), os.urandom(3))


def take_up(store: ObjectStore, suite: str, run_id: str) -> StoredRun | None:
    """Return a run whose whole plan is stored; one that lacks a part is cancelled, and None."""
    run = open_run(store, suite, run_id)
    manifest = _manifest(run)
    if manifest is None:
        return None
    if manifest.is_planned:
        return run
    cancel_run(run, now=datetime.now(UTC))
    return None


def end_unused(run: StoredRun) -> None:
    """Cancel a run that this process has planned, unless another one has taken it up."""
    manifest = _manifest(run)
    if manifest is not None and read_lease(run) is None:
        cancel_run(run, now=datetime.now(UTC))


def end_run(store: ObjectStore, suite: str, run_id: str, runner: Runner | None) -> None:
    """Cancel a run that no worker of the service executes, and its flow run; an ended one stays.

    Raises `StoreError` and `RunnerAwayError`.
    """
    run = open_run(store, suite, run_id)
    manifest = _manifest(run)
    if manifest is None or manifest.state is State.COMPLETED:
        return
    if runner is not None and manifest.is_planned:
        try:
            cancel_submitted(run, runner)
        except RunConflictError:  # it was not submitted
            pass
        else:
            return
    if manifest.state is State.RUNNING:
        cancel_run(run, now=datetime.now(UTC))


def _manifest(run: StoredRun) -> Manifest | None:
    try:
        return run.manifest()
    except (ObjectNotFoundError, DamagedRunError):
        return None
