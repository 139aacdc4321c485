"""What the result parts of runs hold: tallies, rows that can be reused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import _duckdb as duckdb

from evalcore.analytics.named import fill_table, query_text, read_rows
from evalcore.errors import StoreError
from evalcore.model.exchange import ErrorKind
from evalcore.model.run import REFUSED
from evalcore.sql.connection import connect, first_line, literal_path, use_threads_for


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
    return read_rows(connect(), query, files=files)[0] if files else ()


_REFUSALS = (ErrorKind.AUTHENTICATION, ErrorKind.CREDIT, ErrorKind.CONNECTION)


def refused_shards(parts: Sequence[Path]) -> tuple[int, ...]:
    """Return the shards of a run that a provider ended, of those whose results are `parts`.

    They hold items that were not tried, or that it refused. None if no item was left out for it.
    """
    if not parts:
        return ()
    files, kinds = [literal_path(path) for path in parts], list(map(str, _REFUSALS))
    rows = read_rows(connect(), "refused", files=files, reason=REFUSED, kinds=kinds)
    return tuple(shard for (shard,) in rows)


class PlannedItem(NamedTuple):
    """A planned item's place and its identities."""

    item: int
    exec_key: str
    grade_key: str


class ReuseCounts(NamedTuple):
    """How many planned items have evidence, and how many of those are graded the same way.

    `by_run` counts those with evidence by the run that it comes from, in the order of the runs.
    """

    evidence: int
    graded: int
    by_run: tuple[int, ...] = ()


class ReusableRows(AbstractContextManager["ReusableRows"]):
    """The stored rows that planned items can take over; one connection, closed by the context."""

    def __init__(self, runs: Sequence[Sequence[Path]], *, errors: bool, items: int) -> None:
        """Take the result parts of each run, the newest run first.

        `errors` says that items in error have something to take over too: their error.
        """
        use_threads_for(items)
        self._connection = connect()
        self._errors = errors
        self._runs = len(runs)
        files = [(rank, str(path)) for rank, parts in enumerate(runs) for path in parts]
        self._connection.execute(
            "CREATE OR REPLACE TEMP TABLE files AS SELECT unnest($1) AS rank, unnest($2) AS file, "
            "generate_subscripts($2, 1) AS number",
            [[rank for rank, _ in files], [path for _, path in files]],
        )
        self._connection.execute(
            "SET VARIABLE files = $1", [[literal_path(Path(path)) for _, path in files]]
        )

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def match(self, planned: Iterable[PlannedItem]) -> ReuseCounts:
        """Find a stored row for each planned item that has one."""
        columns = {"item": "BIGINT", "exec_key": "VARCHAR", "grade_key": "VARCHAR"}
        fill_table(self._connection, "planned", columns, (item._asdict() for item in planned))
        try:
            self._connection.execute(query_text("reuse_found"), {"errors": self._errors})
        except duckdb.Error as error:
            reason = f"the rows of earlier runs cannot be read: {first_line(error)}"
            raise StoreError(reason) from error
        counted = self._connection.execute(
            "SELECT rank, count(*), count(*) FILTER (graded) FROM found JOIN files USING (number) "
            "GROUP BY rank"
        ).fetchall()
        of_rank = {rank: count for rank, count, _ in counted}
        by_run = tuple(of_rank.get(rank, 0) for rank in range(self._runs))
        return ReuseCounts(sum(by_run), sum(graded for *_, graded in counted), by_run)

    def write_part(self, items: range, destination: Path) -> None:
        """Write the rows of a range of planned items, in their order, to a new Parquet file."""
        path = str(destination).replace("'", "''")
        self._connection.execute(
            f"COPY ({query_text('reuse_part')}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)",
            {"first": items.start, "stop": items.stop},
        )
