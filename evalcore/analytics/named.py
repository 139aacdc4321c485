"""The named queries in `queries/`, and tables that are filled with rows of Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import orjson

from evalcore.sql.connection import literal_path
from evalcore.trust.machine_faults import temporary_folder

# DuckDB reserves several buffers of the largest object that it is told to expect.
_MIN_LINE_BYTES = 1024 * 1024
QUERIES = Path(__file__).parent / "queries"


@lru_cache(maxsize=64)
def query_text(name: str) -> str:
    """Return the text of a named query."""
    return (QUERIES / f"{name}.sql").read_text("utf-8")


class Connection(Protocol):
    """What executes a query."""

    def execute(self, query: str, parameters: Any = None, /) -> Any:
        """Execute a query with its parameters."""


def run_query(connection: Connection, name: str, **parameters: Any) -> Any:
    """Execute a named query; return its result."""
    return connection.execute(query_text(name), parameters or None)


def read_rows(connection: Connection, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """Return the rows of a named query."""
    rows: list[tuple[Any, ...]] = run_query(connection, name, **parameters).fetchall()
    return rows


def first_value(connection: Connection, query: str, parameters: Any = None) -> Any:
    """Return the first value of the first row of a query; None without a row."""
    row = connection.execute(query, parameters).fetchone()
    return row[0] if row else None


def fill_table(
    connection: Connection,
    table: str,
    columns: Mapping[str, str],
    rows: Iterable[Mapping[str, Any]],
) -> None:
    """Make a temporary table of rows; `columns` are SQL types by name.

    A file of JSON lines is read much faster than rows are inserted.
    """
    listed = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} ({listed})")
    with temporary_folder("evalcore-table-") as folder:
        path, longest = folder / "rows.jsonl", _MIN_LINE_BYTES
        with path.open("wb") as file:
            for row in rows:
                line = orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
                longest = max(longest, len(line))
                file.write(line)
        if path.stat().st_size:
            kinds = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
            connection.execute(
                f"INSERT INTO {table} SELECT * FROM "  # noqa: S608 - constants
                f"read_json($1, format = 'newline_delimited', columns = {{{kinds}}}, "
                f"maximum_object_size = {longest + 1})",
                [literal_path(path)],
            )
