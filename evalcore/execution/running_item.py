"""A work item on its way: the values that its steps leave for each other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from evalcore.model.assertion import AssertionResult
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Complete, no_provider
from evalcore.planning.expand import WorkItem

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from evalcore.execution.call_ledger import CallLedger
    from evalcore.execution.calls import Calls, ItemCalls
    from evalcore.execution.limits import Refusal
    from evalcore.execution.row import FinishedItem
    from evalcore.workspaces.manager import Workspace

# Messages are shortened in rows.
_RECOGNISED = 80


def wall_clock_us() -> int:
    """Return the time in microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class RunningItem:
    """A work item that is being executed.

    `calls` asks providers; None for an item that waits for nothing. `timer` is the item's time
    limit. `ledger` lists the calls of the target, not those of checks. `graded_turns` has the
    results of the turns that were graded while the target ran, by their blocks. `refusals` are the
    calls that a provider refused for its key or for credit.
    """

    item: WorkItem
    calls: Calls | None = None
    started_us: int = 0
    timer: asyncio.Timeout | None = None
    workspace: Workspace | None = None
    ledger: CallLedger | None = None
    evidence: Evidence | None = None
    graded_turns: dict[str, tuple[AssertionResult, ...]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)

    @property
    def folder(self) -> Path | None:
        """The folder of the item's workspace; None without one."""
        return None if self.workspace is None else self.workspace.path

    def item_calls(self) -> ItemCalls | None:
        """Return what calls providers for the item, with a ledger of its own."""
        if self.calls is None:
            return None
        item = self.item
        asker = sha256(f"{item.case.id}\0{item.variant.id}".encode()).hexdigest()[:16]
        calls = self.calls.for_item(item.iteration, self.timer, item.number, asker)
        calls.refusals = self.refusals
        return calls

    def tell_refusals(self, finished: FinishedItem) -> None:
        """Note which refusals of providers the item ended with; others were made good."""
        if not self.refusals or self.calls is None:
            return
        error = "" if finished.error is None else finished.error["message"]
        messages = "\n".join([error, *(result.message for result in finished.results)])
        for gate, refusal in self.refusals:
            if refusal.message[:_RECOGNISED] in messages:
                self.calls.context.limits.gates.note_refused_item(gate, refusal)
                return

    @contextmanager
    def noting_faults(self) -> Iterator[None]:
        """Keep a `StoreError` that ends the context; the item's time stands still meanwhile."""
        calls = self.item_calls()
        if self.calls is None or calls is None:
            yield
            return
        with calls.standing_still(), self.calls.session.noting_store_faults():
            yield

    def complete(self) -> Complete:
        """Return `item_calls`, or what refuses every call."""
        return self.item_calls() or no_provider

    @property
    def calls_made(self) -> int:
        """How many calls the target made, each attempt counted."""
        return 0 if self.ledger is None else self.ledger.attempts

    @property
    def partial_evidence(self) -> Evidence | None:
        """The evidence of an item that came to no result; None if it has none.

        Calls that were made were paid. How long an item took that gave no answer says nothing.
        """
        if self.evidence is not None:
            return self.evidence
        if self.ledger is None or not self.ledger.calls:
            return None
        sums = self.ledger.metrics
        metrics = replace(sums, latency_ms=None, ttft_ms=None)
        return Evidence(None, metrics=metrics, details={"calls": self.ledger.calls})
