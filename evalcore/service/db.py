"""The service's database: SQLite or PostgreSQL, transactions, migrations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)

from evalcore.errors import EvalError, ExitCode, UsageError

if TYPE_CHECKING:
    from sqlalchemy import Connection

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
_MIGRATIONS: Final = Path(__file__).parent / "migrations"
# Any number: replicas that start at once migrate one after another.
_LOCK: Final = 7_318_204_517
# Classes of SQLSTATE: connection, rejected login, missing database, deadlock and serialization,
# resources, intervention by the operator (a restart), system error.
_PASSING: Final = frozenset({"08", "28", "3D", "40", "53", "57", "58"})


class DatabaseOutageError(EvalError):
    """The database does not answer; nothing that was committed is lost."""

    exit_code = ExitCode.ERRORS


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
    options: dict[str, Any] = {"hide_parameters": True, "json_deserializer": orjson.loads}
    if url.get_backend_name() == "sqlite":
        engine = create_async_engine(url, connect_args={"timeout": _BUSY_S}, **options)
        event.listen(engine.sync_engine, "connect", _set_up_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_immediately)
        return Database(engine)
    engine = create_async_engine(
        url,
        pool_size=connections,
        max_overflow=connections,
        pool_timeout=_CONNECT_S,
        pool_pre_ping=True,
        connect_args={"timeout": _CONNECT_S, "command_timeout": _STATEMENT_S},
        **options,
    )
    return Database(engine)


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
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


@contextmanager
def naming_outages() -> Iterator[None]:
    """Raise `DatabaseOutageError` for what the database raises while it is away."""
    try:
        yield
    except Exception as error:
        # Drivers raise errors of many types; what is no outage goes on as it is.
        if not is_outage(error):
            raise
        reason = str(error.orig if isinstance(error, DBAPIError) else error).splitlines()
        name = reason[0] if reason else type(error).__name__
        raise DatabaseOutageError(f"the database does not answer: {name}") from error


def is_outage(error: Exception) -> bool:
    """Whether an error says that the database is away, and not that a statement is wrong."""
    if isinstance(error, OperationalError | InterfaceError | PoolTimeoutError | OSError):
        return True
    # asyncpg raises its own errors while it connects; SQLAlchemy wraps the later ones.
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(cause, "sqlstate", None) or "")[:2] in _PASSING


async def upgrade(database: Database) -> None:
    """Apply the migrations that are missing; safe to call from several replicas at once.

    Raises `UsageError` if a newer version of evalcore has migrated the database, and
    `DatabaseOutageError`.
    """
    with naming_outages():
        async with database.engine.begin() as connection:
            if database.is_postgresql:
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    current = MigrationContext.configure(connection).get_current_revision()
    revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in revisions:
        raise UsageError(
            f"the database has the revision '{current}', which this version of evalcore does not "
            "know: start the version that migrated it, or a newer one"
        )
    command.upgrade(config, "head")
