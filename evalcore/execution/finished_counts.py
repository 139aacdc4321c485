"""How many items have finished, by what became of them."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.execution.row import ItemEnd
from evalcore.model.run import State


class FinishedCounts(NamedTuple):
    """Finished items, by the words of the report's counts."""

    passed: int = 0
    failed: int = 0
    blocked: int = 0
    error: int = 0
    skipped: int = 0

    @classmethod
    def name_of(cls, finished: ItemEnd) -> str:
        """Return which of the counts an item is one of."""
        if finished.status in (State.ERROR, State.SKIPPED):
            return finished.status.value
        return "failed" if finished.outcome is None else finished.outcome.value


class RunningCounts:
    """Counts finished items since they were taken last: in one thread, taken in one other."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(FinishedCounts._fields, 0)
        self._before = FinishedCounts()

    def __call__(self, finished: ItemEnd) -> None:
        """Count an item."""
        self._counts[FinishedCounts.name_of(finished)] += 1

    def take(self) -> FinishedCounts:
        """Return what was counted since the last call."""
        counts, before = FinishedCounts(**self._counts), self._before
        self._before = counts
        return FinishedCounts(*(now - then for now, then in zip(counts, before, strict=True)))
