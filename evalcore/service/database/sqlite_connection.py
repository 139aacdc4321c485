"""A connection to SQLite whose statements cost one hop to its thread each.

aiosqlite asks its thread five times for one SELECT (open, execute, fetch, close, and again for
BEGIN). Under load each of them waits for the interpreter's lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import aiosqlite

BEGIN_READING: Final = "BEGIN DEFERRED"
_FETCHED_AT_ONCE: Final = 64


class _Executed(NamedTuple):
    """What a statement gave: all of its rows, and what a cursor tells of it."""

    description: Any
    rows: list[Any]
    lastrowid: int | None
    rowcount: int


class SqliteConnection(aiosqlite.Connection):
    """A connection as SQLAlchemy's dialect `aiosqlite` uses it; rows are fetched as a whole.

    A reading transaction begins with its first statement, and nothing waits for its end.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(partial(sqlite3.connect, path, **options), _FETCHED_AT_ONCE)
        self._thread.daemon = True
        self._begin: str | None = None
        self._is_reading = False

    def cursor(self) -> SqliteCursor:  # type: ignore[override]  # as much as is used of one
        """Return a cursor; the thread learns of it with its first statement."""
        return SqliteCursor(self)

    async def commit(self) -> None:
        """Commit; the end of a transaction that only reads is not waited for."""
        await self._end(sqlite3.Connection.commit)

    async def rollback(self) -> None:
        """Roll back; the end of a transaction that only reads is not waited for."""
        await self._end(sqlite3.Connection.rollback)

    async def _end(self, end: Callable[[sqlite3.Connection], None]) -> None:
        has_not_begun, is_reading = self._begin is not None, self._is_reading
        self._begin, self._is_reading = None, False
        if has_not_begun:
            return
        if is_reading:
            self._tx.put_nowait((None, partial(end, self._conn)))
        elif self._conn.in_transaction:
            await self._in_thread(end, self._conn)

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await self._execute(function, *arguments)  # type: ignore[no-untyped-call]

    async def executed(self, sql: str, parameters: Any, *, many: bool) -> _Executed:
        """Execute a statement and fetch all of its rows."""
        if sql == BEGIN_READING:
            self._begin = sql
            return _Executed(None, [], None, -1)
        begin, self._begin = self._begin, None
        self._is_reading = self._is_reading or begin is not None
        executed: _Executed = await self._in_thread(_run, self._conn, begin, sql, parameters, many)
        return executed


class SqliteCursor:
    """A cursor that has all of its rows once it has executed a statement."""

    def __init__(self, connection: SqliteConnection) -> None:
        self._connection = connection
        self._executed = _Executed(None, [], None, -1)

    def __await__(self) -> Generator[None, None, SqliteCursor]:
        """Return the cursor: SQLAlchemy 2.0 awaits it."""
        yield from ()
        return self

    async def __aenter__(self) -> SqliteCursor:
        """Return the cursor: SQLAlchemy 2.1 enters it and closes it itself."""
        return self

    async def execute(self, sql: str, parameters: Any = ()) -> None:
        """Execute a statement."""
        self._executed = await self._connection.executed(sql, parameters, many=False)

    async def executemany(self, sql: str, parameters: Sequence[Any]) -> None:
        """Execute a statement once for each of the parameters."""
        self._executed = await self._connection.executed(sql, parameters, many=True)

    async def fetchall(self) -> list[Any]:
        """Return all rows."""
        return self._executed.rows

    async def close(self) -> None:
        """Do nothing: the cursor was closed when its rows were fetched."""

    @property
    def description(self) -> Any:
        """The columns; None of a statement without rows."""
        return self._executed.description

    @property
    def lastrowid(self) -> int | None:
        """The number of the row that was inserted last."""
        return self._executed.lastrowid

    @property
    def rowcount(self) -> int:
        """How many rows were changed; -1 if the statement changes none."""
        return self._executed.rowcount


def _run(
    connection: sqlite3.Connection, begin: str | None, sql: str, parameters: Any, many: bool
) -> _Executed:
    """Begin if asked to, execute, fetch: all in the connection's thread."""
    if begin is not None:
        connection.execute(begin)
    cursor = connection.cursor()
    try:
        if many:
            cursor.executemany(sql, parameters)
        else:
            cursor.execute(sql, parameters)
        rows = cursor.fetchall() if cursor.description else []
        return _Executed(cursor.description, rows, cursor.lastrowid, cursor.rowcount)
    finally:
        cursor.close()
