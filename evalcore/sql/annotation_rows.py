"""What stored rows say of people's judgement: which assertions ask for it, of which outputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb

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
