"""One DuckDB connection per process, bounded in memory."""

from __future__ import annotations

import os
import re
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

# What `duckdb` adds to its compiled module (the version, types of the DB API) takes three times as
# long to import as all the rest. Its version is pinned.
import _duckdb as duckdb

from evalcore.errors import MemoryLimitError, StoreError
from evalcore.sql.columns import result_rows_macro

# Only as much is used as a query needs; a shard of the largest outputs needs about this.
MEMORY_LIMIT_MB = 512
# Over fewer rows a run's queries end sooner in one thread (8 000: 69 ms, in two 82 ms), and work
# less.
_ROWS_FOR_THREADS = 20_000
_MOST_THREADS = 8
_PATTERN = re.compile(r"[*?\[]")


def connect() -> duckdb.DuckDBPyConnection:
    """Return a cursor of the process's database: safe to use in one thread, cheap to make.

    What does not fit into `MEMORY_LIMIT_MB` is spilled to the system's temporary folder.
    """
    return _database(os.getpid()).cursor()


def literal_path(path: Path) -> str:
    """Return a file's path for DuckDB, which would take `*`, `?` and `[` for patterns."""
    return _PATTERN.sub(r"[\g<0>]", str(path))


def first_line(error: duckdb.Error) -> str:
    """Return DuckDB's reason in one line."""
    return str(error).strip().partition("\n")[0]


def use_threads_for(rows: int) -> None:
    """Let the process's database use the cores if its queries are over many rows, else one.

    At most `_MOST_THREADS` of them: each needs memory of its own.
    """
    threads = min(os.cpu_count() or 1, _MOST_THREADS) if rows >= _ROWS_FOR_THREADS else 1
    connect().execute(f"SET threads = {threads}")


def _spill_folder(name: str) -> Path:
    try:
        return Path(tempfile.gettempdir()) / name
    except OSError as error:
        reason = f"a database has no folder for what its memory does not hold: {error.strerror}"
        raise StoreError(f"{reason} (TMPDIR chooses another folder)") from error


def open_database(memory_limit_mb: int = MEMORY_LIMIT_MB) -> duckdb.DuckDBPyConnection:
    """Return a database of its own: what is set in it or created in it concerns no other.

    It uses as many threads as there are cores; what does not fit into its memory is spilled.
    """
    spill = _spill_folder(f"evalcore-duckdb-{os.getpid()}-{uuid4().hex[:8]}")
    return _opened(memory_limit_mb, min(os.cpu_count() or 1, _MOST_THREADS), spill)


@cache
def _database(_process: int) -> duckdb.DuckDBPyConnection:
    # A forked process must not share its parent's database, hence the process id as the key. Nor
    # may it close it: a thread of the fork may have the id of a thread that DuckDB would wait for.
    return _opened(MEMORY_LIMIT_MB, 1, _spill_folder(f"evalcore-duckdb-{os.getpid()}"))


def _opened(memory_limit_mb: int, threads: int, spill: Path) -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{memory_limit_mb}MB",
            "threads": str(threads),
            "temp_directory": str(spill),
            "autoinstall_known_extensions": "false",
            "preserve_insertion_order": "true",
        },
    )
    # Times are in UTC. A cast from or to a time with a zone would take the machine's for it.
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    database.execute(result_rows_macro())
    return database


def _largest_limit() -> str:
    """Return DuckDB's own limit: 80 % of the memory of the machine, or of the container."""
    connection = connect()
    connection.execute("RESET memory_limit")  # The buffers keep the limit that was set.
    return str(connection.execute("SELECT current_setting('memory_limit')").fetchall()[0][0])


class BoundedConnection:
    """A cursor of the process's database for queries over so many rows; close it.

    What does not fit into `memory_mb` is spilled. A query that cannot be is tried again with
    most of the machine's memory; until the cursor is closed, that is the whole process's limit.
    """

    usual_mb: ClassVar[int] = MEMORY_LIMIT_MB
    """The limit where none is given. A process that keeps many tables open sets a lower one."""

    def __init__(self, rows: int, memory_mb: int | None = None) -> None:
        use_threads_for(rows)
        self._rows = rows
        self._connection = connect()
        self._limit(memory_mb or self.usual_mb)

    def execute(self, query: str, parameters: Any = None) -> duckdb.DuckDBPyConnection:
        """Execute a query; raise `MemoryLimitError` if the machine has too little memory for it."""
        with suppress(duckdb.OutOfMemoryException):
            return self._connection.execute(query, parameters)
        connect().execute(f"SET memory_limit = '{_largest_limit()}'")
        try:
            return self._connection.execute(query, parameters)
        except duckdb.OutOfMemoryException as error:
            raise MemoryLimitError(
                f"the aggregates of {self._rows:,} rows need more memory than this machine has; "
                "report on a machine with more, or evaluate fewer cases or iterations in one run"
            ) from error

    def close(self) -> None:
        """Close the cursor."""
        self._connection.close()
        self._limit(self.usual_mb)

    def _limit(self, memory_mb: int) -> None:
        # The limit cannot be lowered below what another query of this process holds.
        with suppress(duckdb.OutOfMemoryException):
            connect().execute(f"SET memory_limit = '{memory_mb}MB'")
