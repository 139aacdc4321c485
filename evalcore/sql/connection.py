"""One DuckDB connection per process, bounded in memory."""

from __future__ import annotations

import os
import re
import tempfile
from functools import lru_cache
from pathlib import Path

import duckdb

# Only as much is used as a query needs; a shard of the largest outputs needs about this.
MEMORY_LIMIT = "512MB"
# Waking a second thread takes longer than a query over this many rows.
_ROWS_FOR_THREADS = 2_000
_LEAST_MB, _MB_PER_MILLION_ROWS = 192, 128
_PATTERN = re.compile(r"[*?\[]")


def connect() -> duckdb.DuckDBPyConnection:
    """Return a cursor of the process's database: safe to use in one thread, cheap to make.

    What does not fit into `MEMORY_LIMIT` is spilled to a folder of the system's temporary folder.
    """
    return _database(os.getpid()).cursor()


def literal_path(path: Path) -> str:
    """Return a file's path for DuckDB, which would take `*`, `?` and `[` for patterns."""
    return _PATTERN.sub(r"[\g<0>]", str(path))


def use_threads_for(rows: int) -> None:
    """Let the process's database use all cores if its queries are over many rows, else one."""
    threads = (os.cpu_count() or 1) if rows >= _ROWS_FOR_THREADS else 1
    connect().execute(f"SET threads = {threads}")


def use_memory_for(rows: int) -> None:
    """Bound the process's database by what aggregates over so many rows need.

    What a process holds besides must not add up to more than 700 MB for a million rows.
    """
    megabytes = max(_LEAST_MB, _MB_PER_MILLION_ROWS * rows // 1_000_000)
    connect().execute(f"SET memory_limit = '{megabytes}MB'")


@lru_cache(maxsize=1)
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    # A forked process must not share its parent's database, hence the process id as the key.
    spill = Path(tempfile.gettempdir()) / f"evalcore-duckdb-{os.getpid()}"
    return duckdb.connect(
        ":memory:",
        config={
            "memory_limit": MEMORY_LIMIT,
            "threads": "1",
            "temp_directory": str(spill),
            "autoinstall_known_extensions": "false",
            "preserve_insertion_order": "true",
        },
    )
