"""The history for queries that are not trusted: read-only, no other files, bounded."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import _duckdb as duckdb

from evalcore.analytics.integrity import whole_parts
from evalcore.history.columns import TABLES
from evalcore.history.files import damage_told, local_files, rows_query, table_files
from evalcore.history.statement import ITEMS, QueryError, parse_statement, short_reason
from evalcore.history.unreadable_files import damage_located
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.run_names import choose_run
from evalcore.storage.store import ObjectStore

BATCH_ROWS: Final = 1_000
# A table of texts of this many runs is no question any more.
_MOST_ITEM_RUNS: Final = 20


class QueryLimits(NamedTuple):
    """What a query may use: memory, time, disk for what is sorted and grouped beyond memory."""

    memory_mb: int = 1_024
    time_s: float = 60.0
    spill_mb: int = 4_096


class Answer:
    """The rows of a query, in batches; `columns` are their names, none twice."""

    def __init__(
        self,
        relation: duckdb.DuckDBPyRelation,
        store: ObjectStore,
        limits: QueryLimits,
        interrupted: threading.Event,
    ) -> None:
        self._relation = relation
        self._store = store
        self._limits = limits
        self._interrupted = interrupted
        self.columns: tuple[str, ...] = _distinct(relation.columns)

    def batches(self) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows; raise `QueryError`, and `StoreError` where a file is damaged."""
        with self._explained():
            while batch := self._relation.fetchmany(BATCH_ROWS):
                yield batch

    def write_parquet(self, path: Path) -> None:
        """Write the rows to a file that was announced when the query was asked."""
        with self._explained():
            self._relation.write_parquet(str(path), compression="zstd")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        with explained(self._limits, self._interrupted), damage_located(self._store):
            yield


@contextmanager
def ask(
    store: ObjectStore,
    sql: str,
    limits: QueryLimits | None = None,
    *,
    limit: int | None = None,
    output: Path | None = None,
) -> Iterator[Answer]:
    """Give the answer to one SELECT over the views and `items('RUN')`.

    At most `limit` rows. `output` is the one file that may be written (`Answer.write_parquet`).
    Raises `QueryError` for anything that does more than reading, and for what takes too much.
    """
    limits = limits or QueryLimits()
    statement = parse_statement(sql)
    interrupted = threading.Event()
    with ExitStack() as stack:
        connection = stack.enter_context(open_database(limits.memory_mb))
        files = _create_views(connection, store)
        files += _create_items(connection, store, statement.runs, stack)
        _close_off(connection, [*files, *([] if output is None else [output])], limits)

        def interrupt() -> None:
            interrupted.set()
            connection.interrupt()

        timer = threading.Timer(limits.time_s, interrupt)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        with explained(limits, interrupted), damage_located(store):
            relation = connection.sql(statement.sql)
            relation = relation if limit is None else relation.limit(limit)
            answer = Answer(relation, store, limits, interrupted)
        yield answer


@contextmanager
def explained(limits: QueryLimits, interrupted: threading.Event) -> Iterator[None]:
    """Turn DuckDB's errors into `QueryError`."""
    try:
        yield
    except duckdb.OutOfMemoryException as error:
        raise QueryError(
            f"the query needs more than {limits.memory_mb:,} MB of memory: filter or aggregate "
            "more, or take fewer rows"
        ) from error
    except duckdb.Error as error:
        if interrupted.is_set():
            raise QueryError(
                f"the query took longer than {limits.time_s:g} s and was stopped; "
                "--timeout gives it more"
            ) from error
        raise QueryError(short_reason(error)) from error
    except RuntimeError as error:
        if not interrupted.is_set():
            raise
        raise QueryError(f"the query took longer than {limits.time_s:g} s") from error


def _create_views(connection: duckdb.DuckDBPyConnection, store: ObjectStore) -> list[Path]:
    """Create the view of each table; return the files that they read."""
    files: list[Path] = []
    for name, table in TABLES.items():
        paths = local_files(store, table_files(store, table))
        with damage_told(table), damage_located(store):
            connection.execute(f"CREATE VIEW {name} AS {rows_query(table, paths)}")
        files += paths
    return files


def _create_items(
    connection: duckdb.DuckDBPyConnection,
    store: ObjectStore,
    names: Sequence[str],
    stack: ExitStack,
) -> list[Path]:
    """Create the macro `items` for these names of runs; return the files that it reads."""
    if len(names) > _MOST_ITEM_RUNS:
        raise QueryError(f"{ITEMS}() of {len(names)} runs; {_MOST_ITEM_RUNS} are the most")
    files: list[Path] = []
    selects: list[str] = []
    for name in names:
        run = choose_run(store, name)
        paths = [*stack.enter_context(whole_parts(run, run.manifest())).values()]
        if not paths:
            raise QueryError(f"run {run.run_id} has no rows yet")
        listed = ", ".join(_text(literal_path(path)) for path in paths)
        selects.append(
            f"SELECT {_text(name)} AS named_run, {_text(run.run_id)} AS run_id, * FROM "  # noqa: S608
            f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"
        )
        files += paths
    if selects:
        connection.execute(f"CREATE VIEW named_items AS {' UNION ALL BY NAME '.join(selects)}")
        connection.execute(
            f"CREATE MACRO {ITEMS}(run) AS TABLE "  # noqa: S608  (a name of ours)
            "SELECT * EXCLUDE (named_run) FROM named_items WHERE named_run = run"
        )
    return files


def _close_off(
    connection: duckdb.DuckDBPyConnection, files: Sequence[Path], limits: QueryLimits
) -> None:
    """Set DuckDB's own switches; the last one keeps all of them as they are."""
    paths = ", ".join(_text(str(path)) for path in files)
    for setting in (
        "python_enable_replacements = false",
        "autoload_known_extensions = false",
        "autoinstall_known_extensions = false",
        f"max_temp_directory_size = '{limits.spill_mb}MB'",
        f"allowed_paths = [{paths}]",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


def _text(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'{}'".format(text.replace("'", "''"))


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, the second and later ones of a kind with a number."""
    columns: dict[str, None] = {}
    for name in names:
        column, number = name, 1
        while column in columns:
            column, number = f"{name}_{number}", number + 1
        columns[column] = None
    return tuple(columns)
