"""How many items of a run are finished, by the parts that are committed so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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


def tally(parts: Sequence[Path]) -> Tally:
    """Return the items in these result parts."""
    if not parts:
        return Tally()
    files = [literal_path(part) for part in parts]
    row = connect().execute(query_text("progress"), {"files": files}).fetchone()
    return Tally() if row is None else Tally(*row)
