"""Result rows read back: what a stored row says of an item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import _duckdb as duckdb

from evalcore.errors import StoreError
from evalcore.sql.connection import connect, literal_path


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
        reason = str(error).partition("\n")[0]
        raise UnreadableRowsError(f"the rows to be taken over cannot be read: {reason}") from error
