"""Rows of Parquet tables, streamed through DuckDB."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import _duckdb as duckdb

from evalcore.errors import UsageError
from evalcore.sql.connection import connect, first_line, literal_path

if TYPE_CHECKING:
    from _duckdb import DuckDBPyRelation

BATCH_ROWS = 2_000


class TableError(ValueError):
    """A table cannot be read; the message is DuckDB's reason in one line."""


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield a Parquet file's rows in its order as JSON values by column; raise `TableError`."""
    # DuckDB opens it below Python: what watches the files of a run is told here.
    sys.audit("open", str(path), "rb", os.O_RDONLY)
    try:
        connection = connect()
        # Reading with DuckDB's default of several threads keeps the order of the file.
        result = connection.execute(
            "FROM read_parquet($1, hive_partitioning = false)", [literal_path(path)]
        )
        columns = [column[0] for column in result.description or ()]
        while batch := result.fetchmany(BATCH_ROWS):
            for row in batch:
                yield {name: _plain(value) for name, value in zip(columns, row, strict=True)}
    except duckdb.Error as error:
        raise TableError(first_line(error)[:300]) from error


def _plain(value: Any) -> Any:
    """Return a DuckDB value as a JSON value; what JSON lacks becomes text."""
    match value:
        case None | str() | bool() | int() | float():
            return value
        case Decimal():
            return float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value)


def data_frame(relation: DuckDBPyRelation) -> Any:
    """Return the relation as a pandas DataFrame; raise `UsageError` if pandas is not installed."""
    if find_spec("pandas") is None:
        raise UsageError("a DataFrame needs pandas: pip install 'evalcore-pipeline[notebook]'")
    return relation.df()
