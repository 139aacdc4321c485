"""The service's database: its connection, its transactions, its migrations, its rows."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import aiosqlite
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    ColumnElement,
    DateTime,
    Select,
    bindparam,
    event,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    InvalidatePoolError,
    OperationalError,
)
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


# Classes of SQLSTATE: connection, rejected login, missing database, deadlock and serialization,
# resources, intervention by the operator (a restart), system error.
_PASSING: Final = frozenset({"08", "28", "3D", "40", "53", "57", "58"})


class DatabaseOutageError(EvalError):
    """The database does not answer; nothing that was committed is lost."""

    exit_code = ExitCode.ERRORS


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
        text = reason[0] if reason else type(error).__name__
        raise DatabaseOutageError(f"the database does not answer: {text}") from error


def is_outage(error: Exception) -> bool:
    """Whether an error says that the database is away, and not that a statement is wrong."""
    if isinstance(error, OperationalError | InterfaceError | PoolTimeoutError | OSError):
        return True
    # asyncpg raises its own errors while it connects; SQLAlchemy wraps the later ones.
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(cause, "sqlstate", None) or "")[:2] in _PASSING


_RESTED_S: Final = 5.0
_RETURNED_S: Final = "evalcore_returned_s"


def watch_liveness(engine: AsyncEngine) -> None:
    """Replace connections that the server has closed before they are used.

    The driver learns of a close by itself. A server that vanished without one is asked, in three
    round trips, only over connections that have rested for 5 s; SQLAlchemy's `pool_pre_ping` asks
    before each use.
    """
    event.listen(engine.sync_engine, "checkin", _note_return)
    event.listen(engine.sync_engine, "checkout", _refuse_dead)


def _note_return(_: Any, record: Any) -> None:
    record.info[_RETURNED_S] = time.monotonic()


def _refuse_dead(connection: Any, record: Any, _: Any) -> None:
    if connection.driver_connection.is_closed():
        raise InvalidatePoolError("the server has closed the connection")
    returned_s = record.info.get(_RETURNED_S)
    if returned_s is not None and time.monotonic() - returned_s > _RESTED_S:
        try:
            connection.ping()
        except Exception as error:
            # The driver raises errors of many types; a new connection is tried instead.
            raise InvalidatePoolError("the server does not answer") from error


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


_FOLDER: Final = Path(__file__).parent / "migrations"
# Any number: replicas that start at once migrate one after another.
_LOCK: Final = 7_318_204_517


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
    config = alembic_config()
    config.attributes["connection"] = connection
    current = MigrationContext.configure(connection).get_current_revision()
    revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in revisions:
        raise UsageError(
            f"the database has the revision '{current}', which this version of evalcore does not "
            "know: start the version that migrated it, or a newer one"
        )
    command.upgrade(config, "head")


def alembic_config() -> Config:
    """Return Alembic's configuration for the migrations of this package."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    return config


Row = TypeVar("Row")


def select_rows(table: Any, *where: ColumnElement[bool]) -> Select[Any]:
    """Return the query of all columns of a table; a row has them as attributes."""
    return select(table.__table__).where(*where)


async def read_by_ids(
    session: AsyncSession,
    table: type[Row],
    identifiers: Collection[str],
    project_id: str,
    leave_out: tuple[str, ...] = (),
) -> dict[str, Row]:
    """Return the rows of a project with these ids, without the columns `leave_out`.

    Changing a row changes nothing in the database. No ids are no query.
    """
    if not identifiers:
        return {}
    bound = {"ids": sorted(set(identifiers)), "project_id": project_id}
    rows = await session.execute(_of_ids(cast("Any", table), leave_out), bound)
    return {row.id: cast("Row", row) for row in rows}


async def read_owned(
    session: AsyncSession, table: type[Row], identifier: str, project_id: str
) -> Row | None:
    """Return the row of a project with this id, or None; changing it changes nothing."""
    bound = {"id": identifier, "project_id": project_id}
    rows = await session.execute(_owned(cast("Any", table)), bound)
    return cast("Row | None", rows.first())


async def lock_owned(
    session: AsyncSession, table: Any, identifier: str, project_id: str
) -> Any | None:
    """Return the row of a project with this id, to be changed, or None."""
    return await session.scalar(
        select(table)
        .where(table.id == identifier, table.project_id == project_id)
        .with_for_update()
    )


# Building a query costs as much as a third of executing it.
@cache
def _of_ids(table: Any, leave_out: tuple[str, ...]) -> Select[Any]:
    columns = table.__table__.columns
    return select(*(column for column in columns if column.name not in leave_out)).where(
        columns.id.in_(bindparam("ids", expanding=True)),
        columns.project_id == bindparam("project_id"),
    )


@cache
def _owned(table: Any) -> Select[Any]:
    columns = table.__table__.columns
    return select(table.__table__).where(
        columns.id == bindparam("id"), columns.project_id == bindparam("project_id")
    )
