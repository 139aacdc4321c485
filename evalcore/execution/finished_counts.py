"""How many items have finished, by what became of them."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.execution.row import ItemEnd
from evalcore.model.assertion import Outcome
from evalcore.model.run import State


class FinishedCounts(NamedTuple):
    """Finished items: those that passed, those in error, those skipped, all others as failed."""

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0


class RunningCounts:
    """Counts finished items since they were taken last: in one thread, taken in one other."""

    def __init__(self) -> None:
        self._counts = [0, 0, 0, 0]
        self._before = FinishedCounts()

    def __call__(self, finished: ItemEnd) -> None:
        """Count an item."""
        if finished.status is State.ERROR:
            self._counts[2] += 1
        elif finished.status is State.SKIPPED:
            self._counts[3] += 1
        else:
            self._counts[finished.outcome is not Outcome.PASSED] += 1

    def take(self) -> FinishedCounts:
        """Return what was counted since the last call."""
        counts, before = FinishedCounts(*self._counts), self._before
        self._before = counts
        return FinishedCounts(*(now - then for now, then in zip(counts, before, strict=True)))
