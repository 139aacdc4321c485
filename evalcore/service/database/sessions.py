"""The connection to the database: SQLite in a file, or PostgreSQL by its URL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, DateTime, event, func, literal
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

from evalcore.errors import UsageError
from evalcore.service.database.liveness import watch_liveness
from evalcore.service.database.outages import naming_outages
from evalcore.service.database.sqlite_connection import BEGIN_READING, SqliteConnection

_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "postgres": "postgresql+asyncpg",
}
_BUSY_S: Final = 30
_PRAGMAS: Final = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    f"busy_timeout={_BUSY_S * 1000}",
)
# A server that has vanished answers nothing at all.
_CONNECT_S: Final = 10
_STATEMENT_S: Final = 60
_READS: Final = "evalcore_reads"
_TIME: Final = DateTime(timezone=True)


class Database:
    """The engine and its sessions; each session is one transaction.

    Both kinds of sessions raise `DatabaseOutageError` if the database does not answer.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        options: dict[str, Any] = {_READS: True}
        if self.is_postgresql:
            options["isolation_level"] = "REPEATABLE READ"
        reading = engine.execution_options(**options)
        self._writing = async_sessionmaker(engine, expire_on_commit=False)
        self._reading = async_sessionmaker(reading, expire_on_commit=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncSession]:
        """Give a session whose changes are committed at the end, all or none."""
        with naming_outages():
            async with self._writing() as session, session.begin():
                yield session

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncSession]:
        """Give a session that sees one state of the database and changes nothing."""
        with naming_outages():
            async with self._reading() as session, session.begin():
                yield session

    @property
    def is_postgresql(self) -> bool:
        """Whether rows can be locked one by one."""
        return self.engine.dialect.name == "postgresql"

    def moment(self, after_s: float = 0.0) -> ColumnElement[datetime]:
        """Return the time in so many seconds, by the clock that all replicas share.

        It is the database's: those of the replicas may differ. Replicas on SQLite share a machine.
        """
        ahead = timedelta(seconds=after_s)
        if self.is_postgresql:
            return func.now(type_=_TIME) + literal(ahead)
        return literal(datetime.now(UTC) + ahead, _TIME)

    async def close(self) -> None:
        """Close all connections."""
        await self.engine.dispose()


def database_url(address: str) -> URL:
    """Return the URL with its asynchronous driver. Raises `UsageError`.

    `address` is `sqlite:///path`, `postgresql://…`, or the path of an SQLite file.
    """
    if "://" not in address:
        address = f"sqlite:///{address}"
    try:
        url = make_url(address)
    except ArgumentError as error:
        raise UsageError(f"database: {error}") from error
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None:
        raise UsageError(
            f"database: '{url.get_backend_name()}' is not supported; write sqlite:///FILE or "
            "postgresql://USER:PASSWORD@HOST/NAME"
        )
    return url.set(drivername=driver)


def open_database(address: str, *, connections: int = 10) -> Database:
    """Return the database at an address; nothing is connected yet. Raises `UsageError`."""
    url = database_url(address)
    # The values of statements are payloads, which no error and no log may have.
    if url.get_backend_name() == "sqlite":
        engine = create_async_engine(url, hide_parameters=True, async_creator=_sqlite_creator(url))
        event.listen(engine.sync_engine, "connect", _set_up_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_immediately)
    else:
        engine = create_async_engine(
            url,
            hide_parameters=True,
            pool_size=connections,
            max_overflow=connections,
            pool_timeout=_CONNECT_S,
            connect_args={"timeout": _CONNECT_S, "command_timeout": _STATEMENT_S},
        )
        watch_liveness(engine)
    return Database(engine)


def _sqlite_creator(url: URL) -> Callable[[], Awaitable[SqliteConnection]]:
    """Return what makes a connection."""
    arguments, options = url.get_dialect()().create_connect_args(url)

    async def connect() -> SqliteConnection:
        connection = SqliteConnection(*arguments, **{"timeout": _BUSY_S, **options})
        await connection
        return connection

    return connect


def _set_up_sqlite(connection: Any, _: Any) -> None:
    # Transactions are begun by `_begin_immediately`, not by the driver.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediately(connection: Any) -> None:
    # A transaction that reads first and writes later would fail where another one has written.
    reads = connection.get_execution_options().get(_READS, False)
    connection.exec_driver_sql(BEGIN_READING if reads else "BEGIN IMMEDIATE")


def utc(moment: datetime | None) -> datetime | None:
    """Return a stored time as UTC; SQLite stores no time zone."""
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
