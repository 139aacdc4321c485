"""What stored rows say of people's judgement: which assertions ask for it, of which outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import _duckdb as duckdb

from evalcore.sql.connection import connect, literal_path
from evalcore.sql.stored_rows import UnreadableRowsError

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
        reason = str(error).partition("\n")[0]
        raise UnreadableRowsError(f"the results cannot be read: {reason}") from error


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
        reason = str(error).partition("\n")[0]
        raise UnreadableRowsError(f"the results cannot be read: {reason}") from error
    return row
