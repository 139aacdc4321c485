"""How many items of a run are finished and what they used, by the parts committed so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.analytics.named_queries import query_text
from evalcore.sql.connection import connect, literal_path


class Tally(NamedTuple):
    """Finished items by what became of them."""

    done: int = 0
    passed: int = 0
    failed: int = 0
    blocked: int = 0
    errors: int = 0
    skipped: int = 0
    cancelled: int = 0

    def plus(self, other: Tally) -> Tally:
        """Return the sums of both."""
        return Tally(*(amount + more for amount, more in zip(self, other, strict=True)))


class Used(NamedTuple):
    """US dollars, tokens, and the seconds in which at least one item was at work."""

    cost_usd: float = 0.0
    tokens: int = 0
    busy_s: float = 0.0


def tally(parts: Sequence[Path]) -> Tally:
    """Return the items in these result parts."""
    return Tally(*_totals("progress", parts))


def used_by(parts: Sequence[Path]) -> Used:
    """Return what the items in these result parts have used."""
    return Used(*_totals("spent", parts))


def _totals(query: str, parts: Sequence[Path]) -> tuple[Any, ...]:
    """Return the one row of a query over result parts, () without any part."""
    files = [literal_path(part) for part in parts]
    row = connect().execute(query_text(query), {"files": files}).fetchone() if files else None
    return row or ()
