"""Which of a run's result parts are damaged: asked when reading all of them has failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from evalcore.sql.connection import connect, literal_path

# Hashing a row reads every column of it.
_READ = "SELECT count(hash(row)) FROM read_parquet($1) AS row"


def damaged_parts(parts: Sequence[Path]) -> tuple[int, ...]:
    """Return the places of the parts that cannot be read as Parquet files."""
    return tuple(place for place, part in enumerate(parts) if not _can_be_read(part))


def _can_be_read(part: Path) -> bool:
    with connect() as connection:
        try:
            connection.execute(_READ, [literal_path(part)]).fetchall()
        except duckdb.Error:
            return False
    return True
