"""Remove runs from a store, unless something else still needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final

from evalcore.errors import DamagedRunError, ObjectNotFoundError, UsageError
from evalcore.history.files import read_history
from evalcore.history.rows import is_ended
from evalcore.history.sync import is_current
from evalcore.model.run import State
from evalcore.pipeline.lease import is_interrupted
from evalcore.storage.baselines import list_baselines
from evalcore.storage.runs import StoredRun, list_runs
from evalcore.storage.store import ObjectStore

_DELETERS: Final = 8

Progress = Callable[[int, int], None]
"""Called with how many runs are gone, and how many will be."""


def require_removable(store: ObjectStore, runs: Sequence[StoredRun], *, now: datetime) -> None:
    """Raise `UsageError` with the reasons if some of these runs have to stay.

    What has ended stays unless the history has it. What has not (interrupted, damaged) may go.
    """
    going = {run.run_id for run in runs}
    needed = {}
    for manifest in list_runs(store):
        baseline: Any = manifest.settings.get("baseline")
        if manifest.id not in going and isinstance(baseline, dict):
            needed[baseline.get("run")] = f"run {manifest.id} was compared with it"
    for pointer in list_baselines(store):
        needed[pointer.run] = "it is a baseline; `evalcore baseline clear` first"
    revisions = read_history(store).revisions

    def reason(run: StoredRun) -> str:
        if run.run_id in needed:
            return needed[run.run_id]
        try:
            manifest = run.manifest()
        except (DamagedRunError, ObjectNotFoundError):
            return ""
        if manifest.state is State.RUNNING and not is_interrupted(run, manifest, now=now):
            return "it is running; `evalcore runs cancel` first"
        is_lost = is_ended(manifest) and not is_current(revisions.get(run.run_id), manifest)
        return "the history does not have it" if is_lost else ""

    reasons = [f"{run.run_id}: {why}" for run in runs if (why := reason(run))]
    if reasons:
        raise UsageError(f"nothing is deleted: {'; '.join(reasons)}")


def remove_runs(runs: Sequence[StoredRun], progress: Progress) -> None:
    """Delete the runs.

    The manifest goes last: a run of which something is left is still listed, and can be deleted
    again.
    """
    with ThreadPoolExecutor(_DELETERS) as deleters:
        for number, run in enumerate(runs, 1):
            keys = [info.key for info in run.store.list(run.keys.folder)]
            before_manifest = (key for key in keys if key != run.keys.manifest)
            list(deleters.map(run.store.delete, before_manifest))
            run.store.delete(run.keys.manifest)
            progress(number, len(runs))
