"""The work items of a case, whole: what they answered, how that was graded, what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from evalcore.analytics.named_queries import query_text
from evalcore.model.failure import cut_mark
from evalcore.sql.connection import connect, literal_path


class CaseItem(NamedTuple):
    """The row of a work item. `output` is the beginning of its output.

    `output_characters` is the length of the whole output; None if that stands in the blob
    `output_ref`. `evidence` is JSON text, or stands in the blob `evidence_ref`. Times in
    milliseconds, durations too; `started_ms` and `ended_ms` since the epoch.
    """

    item: int
    case_id: str
    group: str | None
    variant: str
    target: str | None
    iteration: int
    status: str
    reason: str | None
    outcome: str | None
    score: float | None
    threshold: float | None
    error_kind: str | None
    error_message: str | None
    output: str | None
    output_characters: int | None
    output_ref: str | None
    evidence: str | None
    evidence_ref: str | None
    latency_ms: float | None
    ttft_ms: float | None
    cost_usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    attempts: int | None
    started_ms: int | None
    ended_ms: int | None
    scores: Sequence[Mapping[str, Any]] | None
    assertions: Sequence[Mapping[str, Any]] | None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None

    @property
    def end(self) -> str:
        """The outcome of a completed item, the state of any other."""
        return self.outcome or self.status

    @property
    def cut_mark(self) -> str:
        """What a page says of an answer that its provider cut; "" for one that is whole."""
        return cut_mark(self.finish_reason).removeprefix(", ")

    @property
    def output_is_cut(self) -> bool:
        """Whether `output` is not the whole output."""
        if self.output_ref is not None:
            return True
        return (self.output_characters or 0) > len(self.output or "")


class ItemMark(NamedTuple):
    """How a work item of a case ended, without its texts."""

    item: int
    variant: str
    iteration: int
    end: str
    score: float | None


class _Database(Protocol):
    def execute(self, query: str, parameters: Any = None) -> Any: ...


def read_marks(tables: _Database, items: range, iterations: int) -> tuple[ItemMark, ...]:
    """Return how these items ended, from the table `items` of a run."""
    rows = tables.execute(
        "SELECT item, variant, item % $3, coalesce(outcome, status), counted_score FROM items "
        "WHERE item >= $1 AND item < $2 ORDER BY item",
        [items.start, items.stop, iterations],
    ).fetchall()
    return tuple(ItemMark(*row) for row in rows)


def read_items(
    tables: _Database, numbers: Sequence[int], *, most_characters: int
) -> tuple[CaseItem, ...]:
    """Return items of the run whose tables these are, in their order."""
    query = query_text("case_items").format(
        filter="item >= $first AND item <= $last AND list_contains($numbers, item)"
    )
    if not numbers:
        return ()
    parameters = {
        "first": min(numbers),
        "last": max(numbers),
        "numbers": list(numbers),
        "most": most_characters,
    }
    return tuple(CaseItem(*row) for row in tables.execute(query, parameters).fetchall())


def read_case(
    parts: Sequence[Path], case_id: str, group: str | None, *, most_characters: int
) -> tuple[CaseItem, ...]:
    """Return the items of a case from the result parts of a run, in their order."""
    query = query_text("case_items").format(
        filter="case_id = $case_id AND case_group IS NOT DISTINCT FROM $case_group"
    )
    if not parts:
        return ()
    with connect() as connection:
        files = [literal_path(part) for part in parts]
        connection.execute("SET VARIABLE files = $1", [files])
        parameters = {"case_id": case_id, "case_group": group, "most": most_characters}
        return tuple(CaseItem(*row) for row in connection.execute(query, parameters).fetchall())
