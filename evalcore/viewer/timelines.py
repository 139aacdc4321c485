"""The events of an executed workflow as a timeline: a bar for each block, a mark for the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from evalcore.storage.runs import StoredRun
from evalcore.viewer.texts import PageText, TextBudget
from evalcore.workflow.events import Event, EventType
from evalcore.workflow.run_store import ObjectRunStore

MOST_EVENTS: Final = 300
_DATA_CHARACTERS: Final = 1_500
_ENDS: Final = {
    EventType.BLOCK_COMPLETED: "passed",
    EventType.BLOCK_FAILED: "failed",
    EventType.WORKFLOW_COMPLETED: "passed",
    EventType.WORKFLOW_FAILED: "failed",
}
_STARTS: Final = {
    EventType.BLOCK_COMPLETED: EventType.BLOCK_STARTED,
    EventType.BLOCK_FAILED: EventType.BLOCK_STARTED,
    EventType.WORKFLOW_COMPLETED: EventType.WORKFLOW_STARTED,
    EventType.WORKFLOW_FAILED: EventType.WORKFLOW_STARTED,
}


class TimelineRow(NamedTuple):
    """An event. `left` and `width` (percent of the whole) make its bar; a mark has no width.

    `at_ms` is when it happened, `took_ms` what ended with it took.
    """

    sequence: int
    type: str
    block: str | None
    at_ms: float
    took_ms: float | None
    tone: str
    left: float
    width: float
    data: PageText | None


class Timeline(NamedTuple):
    """The events in their order; `omitted` counts those that are left out at the end."""

    rows: tuple[TimelineRow, ...]
    total_ms: float
    omitted: int = 0


def read_timeline(run: StoredRun, item: int, budget: TextBudget) -> Timeline | None:
    """Return the timeline of an item's last execution; None if no events are stored."""
    events = asyncio.run(ObjectRunStore(run.store, run.keys.item_events(item)).load_events())
    return timeline_of(events, budget) if events else None


def timeline_of(events: Sequence[Event], budget: TextBudget) -> Timeline:
    """Return the timeline of the events of one execution."""
    total_ms = max(event.at_ms for event in events) or 1.0
    started: dict[tuple[str, str | None], list[float]] = {}
    rows = []
    for event in events[:MOST_EVENTS]:
        began = _began(event, started)
        took = None if began is None else event.at_ms - began
        left = event.at_ms if began is None else began
        rows.append(
            TimelineRow(
                event.sequence,
                event.type.replace("_", " "),
                event.block,
                event.at_ms,
                took,
                _ENDS.get(_type_of(event), "other") if _type_of(event) else "other",
                round(100 * left / total_ms, 2),
                0.0 if took is None else round(100 * took / total_ms, 2),
                budget.cut(dict(event.data), _DATA_CHARACTERS) if event.data else None,
            )
        )
    return Timeline(tuple(rows), total_ms, len(events) - len(rows))


def _began(event: Event, started: dict[tuple[str, str | None], list[float]]) -> float | None:
    """Return when what ends with an event began; note a beginning."""
    start = _STARTS.get(_type_of(event))
    if start is not None:
        open_starts = started.get((start, event.block))
        return open_starts.pop() if open_starts else None
    started.setdefault((event.type, event.block), []).append(event.at_ms)
    return None


def _type_of(event: Event) -> Any:
    """Return the type; a later version's is a text."""
    return EventType(event.type) if event.type in set(EventType) else event.type
