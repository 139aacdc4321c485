"""How the children of runs are counted: with one query, and never again once all are final."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.service.database.tables import EvalResultRow, EvalRunRow
from evalcore.service.wire.base import FINAL

_MOST_REMEMBERED: Final = 10_000


class ChildCount(NamedTuple):
    """How many children of a run have a status and a verdict."""

    status: str
    verdict: str | None
    children: int


class RunCountsCache:
    """Counts the children of runs; remembers those of runs whose children cannot change."""

    def __init__(self) -> None:
        self._final: dict[str, list[ChildCount]] = {}

    async def read(
        self, session: AsyncSession, rows: Sequence[EvalRunRow]
    ) -> dict[str, list[ChildCount]]:
        """Return the counts by the ids of the runs. What the session has changed is committed."""
        uncounted = [row for row in rows if row.id not in self._final]
        remembered = {row.id: self._final[row.id] for row in rows if row.id in self._final}
        counts = await count_children(session, uncounted)
        if len(self._final) >= _MOST_REMEMBERED:
            self._final.clear()
        for row in uncounted:
            # A final child never changes, and a run gets no further ones.
            final = sum(count.children for count in counts[row.id] if count.status in FINAL)
            if final == row.total_evals:
                self._final[row.id] = counts[row.id]
        return counts | remembered


async def count_children(
    session: AsyncSession, rows: Sequence[EvalRunRow]
) -> dict[str, list[ChildCount]]:
    """Return how the children of runs are as the session sees them, by the ids of the runs."""
    counts: dict[str, list[ChildCount]] = {row.id: [] for row in rows}
    if counts:
        found = await session.execute(_counted(), {"ids": [*counts]})
        for run_id, status, verdict, number in found:
            counts[run_id].append(ChildCount(status, verdict, number))
    return counts


@cache
def _counted() -> Select[str, str, str | None, int]:
    children = EvalResultRow
    return (
        select(children.run_id, children.status, children.verdict, func.count())
        .where(children.run_id.in_(bindparam("ids", expanding=True)))
        .group_by(children.run_id, children.status, children.verdict)
    )
