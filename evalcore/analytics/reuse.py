"""Which planned items have stored evidence already, and the rows that hold it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import _duckdb as duckdb
import orjson

from evalcore.analytics.named import query_text
from evalcore.errors import StoreError
from evalcore.sql.connection import connect, literal_path, use_threads_for
from evalcore.trust.machine_faults import temporary_folder


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


class ReusableRows:
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

    def __enter__(self) -> ReusableRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def match(self, planned: Iterable[PlannedItem]) -> ReuseCounts:
        """Find a stored row for each planned item that has one."""
        with temporary_folder("evalcore-keys-") as folder:
            keys = folder / "keys.jsonl"
            with keys.open("wb") as file:
                for item in planned:
                    file.write(orjson.dumps(item._asdict(), option=orjson.OPT_APPEND_NEWLINE))
            self._connection.execute(
                "CREATE OR REPLACE TEMP TABLE planned AS FROM read_json($1, "
                "columns = {item: 'BIGINT', exec_key: 'VARCHAR', grade_key: 'VARCHAR'}, "
                "format = 'newline_delimited', hive_partitioning = false)",
                [literal_path(keys)],
            )
        try:
            self._connection.execute(query_text("reuse_found"), {"errors": self._errors})
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise StoreError(f"the rows of earlier runs cannot be read: {reason}") from error
        row = self._connection.execute(
            "SELECT count(*), count(*) FILTER (graded) FROM found"
        ).fetchone()
        counted = self._connection.execute(
            "SELECT rank, count(*) FROM found JOIN files USING (number) GROUP BY rank"
        ).fetchall()
        of_rank = dict(counted)
        by_run = tuple(of_rank.get(rank, 0) for rank in range(self._runs))
        evidence, graded = row or (0, 0)
        return ReuseCounts(evidence, graded, by_run)

    def write_part(self, items: range, destination: Path) -> None:
        """Write the rows of a range of planned items, in their order, to a new Parquet file."""
        path = str(destination).replace("'", "''")
        self._connection.execute(
            f"COPY ({query_text('reuse_part')}) TO '{path}' (FORMAT parquet, COMPRESSION zstd)",
            {"first": items.start, "stop": items.stop},
        )
