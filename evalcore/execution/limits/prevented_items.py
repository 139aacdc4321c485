"""What a limit prevented in the run whose recordings are replayed."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.execution.row import FinishedItem
from evalcore.model.run import State
from evalcore.planning.expand import WorkItem


class PreventedItem(NamedTuple):
    """How an item ended that a limit cut short: `reason` of a skipped one, else the error."""

    status: State
    reason: str | None = None
    kind: str | None = None
    message: str | None = None

    def finished(self, item: WorkItem, now_us: int) -> FinishedItem:
        """Return the item as it ended in the recorded run; nothing of it is executed."""
        error = None if self.kind is None else {"kind": self.kind, "message": self.message or ""}
        return FinishedItem(
            item, self.status, now_us, now_us, error=error, reason=self.reason, attempts=0
        )
