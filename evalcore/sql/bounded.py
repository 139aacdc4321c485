"""A connection for the aggregates of a run: little memory first, more where a query needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import _duckdb as duckdb

from evalcore.errors import MemoryLimitError
from evalcore.sql.connection import MEMORY_LIMIT_MB, connect, use_threads_for

# Fewer rows need no bound of their own.
_MANY_ROWS: Final = 200_000
# The tables of fewer rows, and what reading them leaves behind, are less than 10 MB.
_FEWEST_ROWS: Final = 10_000
# With what a process holds besides it has to stay under 700 MB for a million rows.
_LEAST_MB, _MB_PER_MILLION_ROWS = 96, 128
_MOST_MB: Final = 4_096


class BoundedConnection:
    """A cursor of the process's database, bounded by the rows that its queries are over.

    The bound is the whole process's. What is sorted and grouped beyond it is spilled to disk; a
    query that cannot is tried again with twice the memory, up to half of the machine's. Closed, the
    usual bound holds again.
    """

    def __init__(self, rows: int) -> None:
        use_threads_for(rows)
        self._rows = rows
        self._connection = connect()
        self._megabytes = MEMORY_LIMIT_MB
        self._compressed: str | None = None
        if rows >= _MANY_ROWS:
            return_free_memory()
            self._bound(max(_LEAST_MB, _MB_PER_MILLION_ROWS * rows // 1_000_000))

    def execute(self, query: str, parameters: Any = None) -> duckdb.DuckDBPyConnection:
        """Execute a query; raise `MemoryLimitError` if the machine has too little memory for it."""
        return self._fitting(lambda: self._connection.execute(query, parameters))

    def executemany(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a query once for each row of parameters; raises as `execute` does."""
        self._fitting(lambda: self._connection.executemany(query, rows))

    def parameters_of(self, query: str) -> frozenset[str]:
        """Return the names of the parameters that a query has (`$name`)."""
        statements = self._connection.extract_statements(query)
        return frozenset(name for each in statements for name in each.named_parameters)

    def compress(self, tables: Sequence[str]) -> None:
        """Keep temporary tables compressed from now on, in about a tenth of their memory.

        Queries find them by the same names. It takes half as long as making them. The memory that
        becomes free is given back to the system. Nothing is done if the connection is for few rows.
        """
        if self._rows < _FEWEST_ROWS:
            return
        if self._compressed is None:
            self._compressed = f"compressed_{uuid4().hex}"
            self.execute(f"ATTACH ':memory:' AS {self._compressed} (COMPRESS)")
        for table in tables:
            self.execute(f"CREATE TABLE {self._compressed}.{table} AS FROM temp.{table}")
        # Tables are compressed when they are written to the database's blocks.
        self.execute(f"CHECKPOINT {self._compressed}")
        for table in tables:
            self.execute(f"DROP TABLE temp.{table}")
        self.execute(f"USE {self._compressed}")
        self.free_memory()

    def free_memory(self) -> None:
        """Give back to the system what DuckDB and this process have freed.

        Nothing is done if the connection is for few rows, which leave little behind.
        """
        if self._rows < _FEWEST_ROWS:
            return
        # DuckDB gives back what its own allocator keeps whenever its limit is set.
        self._bound(self._megabytes)
        return_free_memory()

    def close(self) -> None:
        """Close the cursor."""
        self._connection.close()
        if self._compressed is not None:
            connect().execute(f"DETACH DATABASE IF EXISTS {self._compressed}")
        if self._megabytes != MEMORY_LIMIT_MB:
            self._bound(MEMORY_LIMIT_MB)

    def _fitting(self, ask: Callable[[], duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection:
        most_mb = max(MEMORY_LIMIT_MB, _machine_mb() // 2)
        while True:
            try:
                return ask()
            except duckdb.OutOfMemoryException as error:
                if self._megabytes >= most_mb:
                    raise MemoryLimitError(
                        f"the aggregates of {self._rows:,} rows need more than "
                        f"{self._megabytes:,} MB of memory; report on a machine with more, or "
                        "evaluate fewer cases or iterations in one run"
                    ) from error
                self._bound(min(self._megabytes * 2, most_mb))

    def _bound(self, megabytes: int) -> None:
        # It cannot be lowered below what another query of this process holds.
        with suppress(duckdb.OutOfMemoryException):
            connect().execute(f"SET memory_limit = '{megabytes}MB'")
        self._megabytes = megabytes


def _machine_mb() -> int:
    """Return the machine's memory; a few GB where it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000
    except (AttributeError, OSError, ValueError):
        return 2 * _MOST_MB


def return_free_memory() -> None:
    """Ask the C library to give back to the system what this process has freed.

    Threads that read, grade and write shards leave each its own pool of it behind: 150 MB after a
    run through Prefect. Only glibc keeps such pools; with another library this does nothing.
    """
    if sys.platform != "linux":
        return
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
