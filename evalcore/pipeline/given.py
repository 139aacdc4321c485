"""What the store gives to the items of a run: where events go, which judges may decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalcore.storage.calibrations import Calibrations
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.workflow.run_store import RunStore


def run_store(run: StoredRun, item: int) -> RunStore:
    """Return where the events of an item's workflow go."""
    from evalcore.workflow.run_store import ObjectRunStore

    return ObjectRunStore(run.store, run.keys.item_events(item))


def calibrations(run: StoredRun) -> Calibrations | None:
    """Return which judges may decide; None: all."""
    return Calibrations(run.store) if run.definition.require_calibrated else None
