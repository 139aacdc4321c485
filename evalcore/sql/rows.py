"""Result rows → one Parquet file."""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import _duckdb as duckdb

from evalcore.errors import StoreError
from evalcore.sql.connection import connect
from evalcore.sql.result_columns import row_schema

_COLUMNS = row_schema()
# DuckDB reserves several buffers of the largest object that it is told to expect.
_MIN_BUFFER_BYTES = 1024 * 1024


class RowsError(StoreError):
    """Rows do not fit into the columns; nothing is wrong with the place that they are written to.

    `reason` is DuckDB's.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the rows of a shard cannot be written as Parquet: {reason}")
        self.reason = reason

    def __reduce__(self) -> tuple[type[RowsError], tuple[str]]:
        """Survive pickling."""
        return type(self), (self.reason,)


def write_rows(lines: list[bytes], destination: Path) -> None:
    """Write rows (JSON lines, one object each, in order) to a new Parquet file.

    The columns are in docs/reference/store.md; a missing key is NULL. Raises `RowsError` if one of
    them does not fit.
    """
    longest = max(_MIN_BUFFER_BYTES, *map(len, lines)) if lines else _MIN_BUFFER_BYTES
    with NamedTemporaryFile(dir=destination.parent, suffix=".jsonl", prefix=".rows-") as file:
        file.write(b"".join(lines))
        file.flush()
        _execute(
            f"""
            COPY (
                SELECT * REPLACE (
                    make_timestamp(started_at) AS started_at, make_timestamp(ended_at) AS ended_at
                )
                FROM read_json($1, columns = {_COLUMNS}, format = 'newline_delimited',
                               hive_partitioning = false, maximum_object_size = {longest + 1})
            ) TO '{_quoted(destination)}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)
            """,  # noqa: S608  (COPY takes no parameter for its file; the path is ours)
            [file.name],
        )


def unwritable_rows(lines: list[bytes]) -> dict[int, str]:
    """Return which rows no shard can hold, with the reason; looked for by halves."""
    reasons: dict[int, str] = {}

    def search(indices: range) -> None:
        reason = _reason_unreadable([lines[index] for index in indices])
        if reason is None:
            return
        if len(indices) == 1:
            reasons[indices[0]] = reason
            return
        middle = len(indices) // 2
        search(indices[:middle])
        search(indices[middle:])

    search(range(len(lines)))
    return reasons


def _reason_unreadable(lines: list[bytes]) -> str | None:
    """Return why rows cannot be read into the columns; None if they can."""
    with TemporaryDirectory(prefix="evalcore-") as folder:
        try:
            write_rows(lines, Path(folder) / "rows.parquet")
        except RowsError as error:
            return error.reason.partition(" in file ")[0]
    return None


def _execute(statement: str, parameters: list[str]) -> None:
    try:
        connect().execute(statement, parameters)
    except (duckdb.DataError, duckdb.InvalidInputException) as error:
        raise RowsError(str(error).partition("\n")[0]) from error
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise StoreError(f"the rows of a shard cannot be written as Parquet: {reason}") from error


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
