"""Asking the history: by SQL that is not trusted, from Python, a run's rows.

A query of a user is one SELECT over the views. The database is closed by DuckDB's own switches.
Some functions of DuckDB do more than they say (`enable_logging` writes files, and ends the process
where it may not), so what a statement calls is looked up in DuckDB's own parse of it.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import _duckdb as duckdb

from evalcore.analytics.integrity import whole_parts
from evalcore.analytics.named import fill_table, query_text
from evalcore.errors import UsageError
from evalcore.history.files import HistoryViews, quoted
from evalcore.history.sync import sync
from evalcore.history.trend import SuiteHistory
from evalcore.model.summary import Metric
from evalcore.settings import read_settings
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.address import open_store
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.wording import is_unicode

Relation: TypeAlias = duckdb.DuckDBPyRelation

BATCH_ROWS: Final = 1_000
# A table of texts of this many runs is no question any more.
_MOST_ITEM_RUNS: Final = 20
ITEMS: Final = "items"
_MOST_CHARACTERS: Final = 100_000
_MOST_REASON: Final = 400
_TABLE_FUNCTIONS: Final = frozenset(
    {
        *(ITEMS, "range", "generate_series", "unnest", "repeat", "repeat_row"),
        *("json_each", "json_tree", "histogram", "histogram_values"),
    }
)
_REFUSED_FUNCTIONS: Final = frozenset(
    {"write_log", "current_setting", "getenv", "setseed", "nextval", "currval", "query"}
)
_ONE_SELECT: Final = "the history can only be read, by one SELECT at a time"


class QueryError(UsageError):
    """A query that is refused or wrong; `exit_code` 2."""


def parse_statement(sql: str) -> tuple[str, ...]:
    """Return the runs that one SELECT names by `items('RUN')`.

    Raises `QueryError` with the reason for any other text.
    """
    if len(sql) > _MOST_CHARACTERS:
        raise QueryError(f"the query has more than {_MOST_CHARACTERS:,} characters")
    if "\0" in sql or not is_unicode(sql):
        raise QueryError("the query is not valid Unicode text, or has a NUL character")
    with open_database(_PARSER_MEMORY_MB) as connection:
        # `IMPORT DATABASE` reads files while it is parsed.
        connection.execute("SET enable_external_access = false")
        try:
            kinds = [
                str(each.type).rpartition(".")[2] for each in connection.extract_statements(sql)
            ]
            if not kinds:
                raise QueryError("there is no statement; `evalcore query --schema` shows the views")
            if kinds != ["SELECT"]:
                raise QueryError(f"{', '.join(kinds)}: {_ONE_SELECT}")
            query = query_text("statement_functions")
            calls = connection.execute(query, {"statement": sql}).fetchall()
        except duckdb.Error as error:
            raise QueryError(_short_reason(error)) from error
    if not calls:
        raise QueryError(f"PRAGMA: {_ONE_SELECT}")
    return tuple(dict.fromkeys(run for call in calls if (run := _checked_run(*call)) is not None))


def _checked_run(name: str, is_table: bool, argument: str | None) -> str | None:
    """Return the text that `items` is called with; raise for a function that is refused."""
    if name in _REFUSED_FUNCTIONS or (is_table and name not in _TABLE_FUNCTIONS):
        functions = ", ".join(sorted(_TABLE_FUNCTIONS))
        raise QueryError(
            f"{name}() is refused: a query reads the views and nothing else; "
            f"the table functions are {functions}"
        )
    if not is_table or name != ITEMS:
        return None
    if argument is None:
        raise QueryError(f"{ITEMS}() takes one run by its name as a text: {ITEMS}('latest')")
    return argument


def _short_reason(error: Exception) -> str:
    """Return DuckDB's message without the excerpt of the query, on one line."""
    text = re.split(r"\nLINE \d+:|\n\s*\^", str(error))[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    text = " ".join(lines[:3])
    if isinstance(error, duckdb.InternalException):
        text = f"DuckDB failed: {lines[0] if lines else ''}"
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}…"


_PARSER_MEMORY_MB: Final = 128


class QueryLimits(NamedTuple):
    """What a query may use: memory, time, disk for what is sorted and grouped beyond memory."""

    memory_mb: int = 1_024
    time_s: float = 60.0
    spill_mb: int = 4_096


class Answer:
    """The rows of a query, in batches; `columns` are their names, none twice."""

    def __init__(
        self, relation: Relation, explained: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._relation = relation.project("*")  # gives columns of one name a number
        self._explained = explained
        self.columns = tuple(self._relation.columns)

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
    runs = parse_statement(sql)
    interrupted = threading.Event()
    with ExitStack() as stack:
        views = stack.enter_context(HistoryViews(store, memory_mb=limits.memory_mb))
        connection = views.connection
        files = [*views.paths, *_create_items(connection, store, runs, stack)]
        _close_off(connection, [*files, *([] if output is None else [output])], limits)

        @contextmanager
        def explained() -> Iterator[None]:
            try:
                with views.naming_damage():
                    yield
            except (duckdb.Error, RuntimeError) as error:
                if not (interrupted.is_set() or isinstance(error, duckdb.Error)):
                    raise
                raise QueryError(_reason(error, limits, interrupted.is_set())) from error

        def interrupt() -> None:
            interrupted.set()
            connection.interrupt()

        timer = threading.Timer(limits.time_s, interrupt)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        with explained():
            relation = connection.sql(sql)
            answer = Answer(relation if limit is None else relation.limit(limit), explained)
        yield answer


def _reason(error: Exception, limits: QueryLimits, interrupted: bool) -> str:
    if isinstance(error, duckdb.OutOfMemoryException):
        return (
            f"the query needs more than {limits.memory_mb:,} MB of memory: filter or aggregate "
            "more, or take fewer rows"
        )
    if interrupted:
        return f"the query took longer than {limits.time_s:g} s; --timeout gives it more"
    return _short_reason(error)


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
        listed = ", ".join(quoted(literal_path(path)) for path in paths)
        selects.append(
            f"SELECT {quoted(name)} AS named_run, {quoted(run.run_id)} AS run_id, * FROM "  # noqa: S608
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
    paths = ", ".join(quoted(str(path)) for path in files)
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


def item_relation(run: StoredRun) -> Relation:
    """Return the rows of a run in the order of the plan, in a database of their own.

    Those of a remote store are fetched. Raises `UsageError` if the run has no results, and
    `DamagedRunError` if it does not have all of them.
    """
    connection = open_database()
    with whole_parts(run, run.manifest()) as parts:
        if not parts:
            raise UsageError(f"run {run.run_id} has no results")
        files = [literal_path(path) for path in parts.values()]
        query = (
            "FROM read_parquet($files, hive_partitioning = false, union_by_name = true) "
            "ORDER BY item"
        )
        if run.store.local_path(run.keys.result(min(parts))) is None:
            connection.execute(f"CREATE TABLE items AS {query}", {"files": files})
            return connection.table("items")
        return connection.sql(query, params={"files": files})


_POINTS: Final = {
    **{"run_id": "VARCHAR", "started_at": "TIMESTAMP", "variant": "VARCHAR"},
    **{"value": "DOUBLE", "low": "DOUBLE", "high": "DOUBLE"},
    **{"decision": "VARCHAR", "changes": "VARCHAR[]"},
}


class History(AbstractContextManager["History"]):
    """The history of a store: an address, a folder, or the configured one.

    It is brought up to date when it is opened, unless `refresh` is False. The views `runs`,
    `gates`, `cases` and `assertions` are those of that moment; their times are in UTC. Results are
    DuckDB relations: `.fetchall()`, `.df()` (with pandas), `.arrow()` and `.pl()` (with pyarrow),
    `polars.DataFrame(relation)` (with Polars alone). The extra `notebook` installs all three.
    """

    def __init__(
        self, store: str | Path | ObjectStore | None = None, *, refresh: bool = True
    ) -> None:
        if store is None:
            store = read_settings(os.environ, Path.cwd()).store
        if isinstance(store, str | Path):
            store = open_store(str(store))
        self.store = store
        if refresh:
            sync(store)
        self._views = HistoryViews(store)

    def sql(self, text: str, **parameters: Any) -> Relation:
        """Return the answer to a query; `$name` in it stands for a parameter.

        The query may do what DuckDB can. For SQL that is not trusted there is `evalcore query`.
        """
        return self._views.connection.sql(text, params=parameters or None)

    def runs(self, suite: str | None = None) -> Relation:
        """Return the runs (of a suite), one row for each variant, oldest first."""
        return self._of_suite("runs", suite, "started_at, run_id, variant")

    def cases(self, suite: str | None = None) -> Relation:
        """Return the cases of all runs (of a suite), one row for each run and variant."""
        return self._of_suite("cases", suite, "run_id, case_id, variant")

    def trend(
        self,
        suite: str,
        metric: str = Metric.SCORE,
        *,
        variant: str | None = None,
        since: timedelta | datetime | None = None,
    ) -> Relation:
        """Return the trend of a suite's score, pass_rate, latency, cost or tokens.

        `since`: runs of this time, or created after an aware time. Raises `UsageError` for an
        unknown suite, variant or metric.
        """
        if metric not in set(Metric):
            raise UsageError(f"unknown metric '{metric}'; known: {', '.join(Metric)}")
        after = datetime.now(UTC) - since if isinstance(since, timedelta) else since
        with SuiteHistory(self.store, suite, since=after) as history:
            points = history.trend(Metric(metric), variant).points
        connection = open_database()
        rows = ({name: getattr(point, name) for name in _POINTS} for point in points)
        fill_table(connection, "points", _POINTS, rows)
        return connection.table("points")

    def close(self) -> None:
        """Close the database; relations of it cannot be read any more."""
        self._views.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of_suite(self, view: str, suite: str | None, order: str) -> Relation:
        relation = self._views.connection.view(view)
        if suite is not None:
            same = duckdb.ColumnExpression("suite") == duckdb.ConstantExpression(suite)
            relation = relation.filter(same)
        return relation.order(order)
