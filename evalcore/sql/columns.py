"""The columns of `results/*.parquet`, declared in `columns.csv`: a contract with all who read them.

The file's schema and the table of docs/reference/store.md are made from its rows. A column is never
removed, renamed or given another type; new ones come at the end.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Final, NamedTuple


class Column(NamedTuple):
    """One column: name, type in DuckDB, unit (empty where it has none), meaning in one sentence.

    A time is in UTC.
    """

    name: str
    type: str
    unit: str
    meaning: str


def read_columns(path: Path, table: str) -> tuple[Column, ...]:
    """Return the columns of a table that a file of rows `table,name,type,unit,meaning` declares."""
    rows = csv.reader(path.read_text("utf-8").splitlines())
    return tuple(Column(*values) for of, *values in rows if of == table)


TIMESTAMP: Final = "TIMESTAMP"
RESULT_COLUMNS: Final = read_columns(Path(__file__).with_name("columns.csv"), "results")
FIRST_COLUMNS: Final = RESULT_COLUMNS[:30]
"""Files of every version have these; those of earlier ones have no more."""


def row_schema() -> str:
    """Return the columns of rows on their way, as `read_json` takes them.

    Times are microseconds since the epoch: DuckDB parses integers faster than ISO texts.
    """
    types = (
        f"{column.name}: '{'BIGINT' if column.type == TIMESTAMP else column.type}'"
        for column in RESULT_COLUMNS
    )
    return f"{{{', '.join(types)}}}"


def result_rows_macro() -> str:
    """Return the statement that makes `result_rows(files)`: rows with all columns, NULL if new."""
    later = RESULT_COLUMNS[len(FIRST_COLUMNS) :]
    empty = ", ".join(f"NULL::{column.type} AS {column.name}" for column in later)
    return (
        f"CREATE OR REPLACE MACRO result_rows(files) AS TABLE (SELECT {empty} WHERE false "  # noqa: S608
        "UNION ALL BY NAME SELECT * FROM "
        "read_parquet(files, hive_partitioning = false, union_by_name = true))"
    )
