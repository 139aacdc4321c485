"""What the committed items of a run have used: its budgets go on from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evalcore.analytics.named_queries import query_text
from evalcore.sql.connection import connect, literal_path


class Used(NamedTuple):
    """US dollars, tokens, and the seconds in which at least one item was at work."""

    cost_usd: float = 0.0
    tokens: int = 0
    busy_s: float = 0.0


def used_by(parts: Sequence[Path]) -> Used:
    """Return what the items in these result parts have used."""
    if not parts:
        return Used()
    files = [literal_path(part) for part in parts]
    row = connect().execute(query_text("spent"), {"files": files}).fetchone()
    return Used() if row is None else Used(float(row[0]), int(row[1]), float(row[2]))
