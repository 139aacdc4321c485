"""Result rows → one Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import _duckdb as duckdb

from evalcore.errors import StoreError
from evalcore.sql.columns import row_schema
from evalcore.sql.connection import connect, first_line, literal_path

_COLUMNS = row_schema()
# DuckDB reserves several buffers of the largest object that it is told to expect.
_MIN_BUFFER_BYTES = 1024 * 1024


def write_rows(lines: list[bytes], destination: Path) -> None:
    """Write rows (JSON lines, one object each, in order) to a new Parquet file.

    The columns are in docs/reference/store.md; a missing key is NULL. Raises `StoreError`.
    """
    longest = max(_MIN_BUFFER_BYTES, *map(len, lines)) if lines else _MIN_BUFFER_BYTES
    with NamedTemporaryFile(dir=destination.parent, suffix=".jsonl", prefix=".rows-") as file:
        file.write(b"".join(lines))
        file.flush()
        quoted = str(destination).replace("'", "''")
        statement = f"""
            COPY (
                SELECT * REPLACE (
                    make_timestamp(started_at) AS started_at, make_timestamp(ended_at) AS ended_at
                )
                FROM read_json($1, columns = {_COLUMNS}, format = 'newline_delimited',
                               hive_partitioning = false, maximum_object_size = {longest + 1})
            ) TO '{quoted}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)
            """  # noqa: S608  (COPY takes no parameter for its file; the path is ours)
        try:
            connect().execute(statement, [file.name])
        except duckdb.Error as error:
            reason = f"the rows of a shard cannot be written as Parquet: {first_line(error)}"
            raise StoreError(reason) from error


class UnreadableRowsError(StoreError):
    """A file of rows is no whole Parquet file."""


def read_item_rows(path: Path, items: range) -> list[dict[str, Any]]:
    """Return the rows of these items as values by column, in their order.

    Raises `UnreadableRowsError`.
    """
    try:
        result = connect().execute(
            "SELECT * REPLACE (epoch_us(started_at) AS started_at, epoch_us(ended_at) AS ended_at)"
            " FROM read_parquet($1, hive_partitioning = false)"
            " WHERE item >= $2 AND item < $3 ORDER BY item",
            [literal_path(path), items.start, items.stop],
        )
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    except duckdb.Error as error:
        reason = f"the rows to be taken over cannot be read: {first_line(error)}"
        raise UnreadableRowsError(reason) from error


_BATCH = 2_000
_QUESTIONS = """
SELECT item, case_id, variant, iteration, a.name, a.details
FROM (
    SELECT item, case_id, variant, iteration, unnest(list_filter(
        assertions, a -> a.details IS NOT NULL AND contains(a.details, '"annotation":')
    )) AS a
    FROM read_parquet($1, hive_partitioning = false)
)
ORDER BY item
"""
_OUTPUT = """
SELECT output, output_ref FROM read_parquet($file, hive_partitioning = false) WHERE item = $item
"""
_DETAILS = """
SELECT list_filter(
    list_transform(assertions, a -> a.details), details -> contains(details, $key)
)[1]
FROM read_parquet($file, hive_partitioning = false)
WHERE item = $item
"""


class QuestionRow(NamedTuple):
    """One assertion of one item that asks people; `details` is JSON text."""

    item: int
    case_id: str
    variant: str
    iteration: int
    assertion: str
    details: str


def read_questions(parts: Sequence[Path]) -> Iterator[QuestionRow]:
    """Yield the assertions that ask people, in the order of the items.

    Raises `UnreadableRowsError`.
    """
    if not parts:
        return
    try:
        result = connect().execute(_QUESTIONS, [[literal_path(part) for part in parts]])
        while rows := result.fetchmany(_BATCH):
            yield from map(QuestionRow._make, rows)
    except duckdb.Error as error:
        raise UnreadableRowsError(f"the results cannot be read: {first_line(error)}") from error


class StoredOutput(NamedTuple):
    """The output of an item, or its beginning and the digest of the blob that holds it."""

    output: str | None
    output_ref: str | None


def read_output(path: Path, item: int) -> StoredOutput | None:
    """Return the output of an item; None if the file has no such item.

    Raises `UnreadableRowsError`.
    """
    row = _only_row(_OUTPUT, {"file": literal_path(path), "item": item})
    return None if row is None else StoredOutput._make(row)


def read_details(path: Path, item: int, key: str) -> str | None:
    """Return the details (JSON text) of an item's assertion about the content `key`; None without.

    Raises `UnreadableRowsError`.
    """
    row = _only_row(_DETAILS, {"file": literal_path(path), "item": item, "key": key})
    return None if row is None else row[0]


def _only_row(query: str, parameters: Mapping[str, Any]) -> tuple[Any, ...] | None:
    try:
        row: tuple[Any, ...] | None = connect().execute(query, dict(parameters)).fetchone()
    except duckdb.Error as error:
        raise UnreadableRowsError(f"the results cannot be read: {first_line(error)}") from error
    return row
