"""Asking the history: by SQL that is not trusted, from Python, a run's rows.

A query of a user is one statement that reads the views and nothing else. The database is closed
besides by DuckDB's own switches. Some functions of DuckDB do more than they say (`enable_logging`
writes files, and ends the process where it may not), so what a statement calls is looked up in
DuckDB's own parse of it.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import _duckdb as duckdb

from evalcore.analytics.integrity import whole_parts
from evalcore.errors import UsageError
from evalcore.history.columns import TABLES
from evalcore.history.files import HistoryViews, quoted
from evalcore.history.sync import sync
from evalcore.history.trend import SuiteHistory
from evalcore.model.summary import Metric, Trend, TrendPoint
from evalcore.settings import read_settings
from evalcore.sql.connection import literal_path, open_database
from evalcore.storage.address import open_store
from evalcore.storage.run_names import choose_run
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import ObjectStore
from evalcore.wording import did_you_mean, is_unicode

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
_FILE_FUNCTIONS: Final = re.compile(r"^(?:read_|parquet_|sniff_|glob$|.*_scan)|_scan$")
_REFUSED_FUNCTIONS: Final = frozenset(
    {"write_log", "current_setting", "getenv", "setseed", "nextval", "currval", "query"}
)
_NAMED_FILE: Final = re.compile(r"[/\\:*?]|\.\w{1,8}$")
_NO_SETTINGS: Final = "settings cannot be changed"
_VERBS: Final = {
    **dict.fromkeys(("ATTACH", "DETACH"), "no other database can be attached"),
    **dict.fromkeys(("COPY", "EXPORT"), "nothing can be written"),
    **dict.fromkeys(("EXTENSION", "LOAD"), "no extension can be loaded"),
    **dict.fromkeys(("PRAGMA", "SET", "VARIABLE_SET"), _NO_SETTINGS),
    "CALL": "procedures cannot be called",
    "CREATE": "nothing can be created; PIVOT needs `IN (…)` inside of a SELECT",
    "EXPLAIN": "plans are not shown",
}
_CLOSED: Final[dict[str, str | bool | int | float | list[str]]] = {
    "enable_external_access": "false",
    "lock_configuration": "true",
    "memory_limit": "128MB",
    "threads": "1",
}
_ONLY_READS: Final = "the history can only be read"


class QueryError(UsageError):
    """A query that is refused or wrong; `exit_code` 2."""


class SelectStatement(NamedTuple):
    """One checked statement, and the runs that it names by `items('RUN')`."""

    sql: str
    runs: tuple[str, ...]


def parse_statement(sql: str) -> SelectStatement:
    """Return the one statement of a text; raise `QueryError` with the reason for any other."""
    if len(sql) > _MOST_CHARACTERS:
        raise QueryError(f"the query has more than {_MOST_CHARACTERS:,} characters")
    if "\0" in sql:
        raise QueryError("the query has a NUL character")
    if not is_unicode(sql):
        raise QueryError("the query is not valid Unicode text")
    # `IMPORT DATABASE` reads files while it is parsed.
    connection = duckdb.connect(":memory:", config=_CLOSED)
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise QueryError(_count_reason([_kind(statement) for statement in statements]))
        kind = _kind(statements[0])
        if kind != "SELECT":
            raise QueryError(f"{kind}: {_VERBS.get(kind, _ONLY_READS)}; ask with one SELECT")
        row = connection.execute("SELECT json_serialize_sql($1::VARCHAR)", [sql]).fetchone()
    except duckdb.Error as error:
        raise QueryError(_short_reason(error)) from error
    finally:
        connection.close()
    tree = _syntax_tree(row[0]) if row else {"error": True}
    if tree.get("error"):
        raise QueryError(f"{_NO_SETTINGS}; ask with one SELECT")
    return SelectStatement(sql, tuple(dict.fromkeys(_checked_runs(tree))))


def _syntax_tree(text: str) -> Any:
    """Return what DuckDB writes of a statement. Constants such as 1e400 are `Infinity` there."""
    try:
        return json.loads(text)
    except RecursionError:
        raise QueryError(
            "the query is nested too deeply; write it with fewer functions or operators inside "
            "of each other, for example with `IN (…)` or `WITH`"
        ) from None


def _short_reason(error: duckdb.Error) -> str:
    """Return DuckDB's message without the excerpt of the query, on one line."""
    lines: list[str] = []
    for line in str(error).splitlines():
        if re.match(r"LINE \d+:|\s*\^", line):
            break
        if line.strip():
            lines.append(line.strip())
    text = " ".join(lines[:3]) or type(error).__name__
    if isinstance(error, duckdb.InternalException):
        text = f"DuckDB failed: {lines[0] if lines else ''}"
    return text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}…"


def _kind(statement: duckdb.Statement) -> str:
    return str(statement.type).rpartition(".")[2]


def _count_reason(kinds: list[str]) -> str:
    if not kinds:
        return "there is no statement; `evalcore query --schema` shows the views"
    refused = next((kind for kind in kinds if kind != "SELECT"), None)
    why = "" if refused is None else f" ({refused}: {_VERBS.get(refused, _ONLY_READS)})"
    return f"one statement at a time, and these are {len(kinds)}{why}"


def _checked_runs(tree: Any) -> Iterator[str]:
    """Yield the texts that `items` is called with; raise for what a query may not use."""
    for node in _nodes(tree):
        match node:
            case {"type": "TABLE_FUNCTION", "function": {"function_name": str(name), **call}}:
                _check_table_function(name)
                if name.lower() == ITEMS:
                    yield _item_run(call.get("children"))
            case {"type": "FUNCTION", "function_name": str(name)}:
                if name.lower() in _REFUSED_FUNCTIONS:
                    raise QueryError(f"{name}(): a query has no use of settings or of the process")
            case {"type": "BASE_TABLE", "table_name": str(name)}:
                _check_table(name)


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a JSON value; without recursion, which a deep query could exhaust."""
    pending = [tree]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield value
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _check_table_function(name: str) -> None:
    lowered = name.lower()
    if lowered in _TABLE_FUNCTIONS:
        return
    if _FILE_FUNCTIONS.search(lowered):
        raise QueryError(f"{name}(): no file can be read but the history's own")
    functions = ", ".join(sorted(_TABLE_FUNCTIONS))
    raise QueryError(f"{name}() is no table function of the history; there are {functions}")


def _check_table(name: str) -> None:
    """Refuse what DuckDB would take for a file; an unknown view is DuckDB's to tell."""
    if _NAMED_FILE.search(name):
        hint = did_you_mean(name, TABLES)
        raise QueryError(f"'{name}': no file can be read but the history's own{hint}")


def _item_run(arguments: Any) -> str:
    match arguments:
        case [{"class": "CONSTANT", "value": {"type": {"id": "VARCHAR"}, "value": str(name)}}]:
            return name
    raise QueryError(f"{ITEMS}() takes one run by its name as a text: {ITEMS}('latest')")


class QueryLimits(NamedTuple):
    """What a query may use: memory, time, disk for what is sorted and grouped beyond memory."""

    memory_mb: int = 1_024
    time_s: float = 60.0
    spill_mb: int = 4_096


class Answer:
    """The rows of a query, in batches; `columns` are their names, none twice."""

    def __init__(
        self,
        relation: Relation,
        views: HistoryViews,
        limits: QueryLimits,
        interrupted: threading.Event,
    ) -> None:
        self._relation = relation
        self._views = views
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
        with _explained(self._limits, self._interrupted), self._views.naming_damage():
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
        views = stack.enter_context(HistoryViews(store, memory_mb=limits.memory_mb))
        connection = views.connection
        files = [*views.paths, *_create_items(connection, store, statement.runs, stack)]
        _close_off(connection, [*files, *([] if output is None else [output])], limits)

        def interrupt() -> None:
            interrupted.set()
            connection.interrupt()

        timer = threading.Timer(limits.time_s, interrupt)
        timer.daemon = True
        timer.start()
        stack.callback(timer.cancel)
        with _explained(limits, interrupted), views.naming_damage():
            relation = connection.sql(statement.sql)
            relation = relation if limit is None else relation.limit(limit)
            answer = Answer(relation, views, limits, interrupted)
        yield answer


@contextmanager
def _explained(limits: QueryLimits, interrupted: threading.Event) -> Iterator[None]:
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
        raise QueryError(_short_reason(error)) from error
    except RuntimeError as error:
        if not interrupted.is_set():
            raise
        raise QueryError(f"the query took longer than {limits.time_s:g} s") from error


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


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names, the second and later ones of a kind with a number."""
    columns: dict[str, None] = {}
    for name in names:
        column, number = name, 1
        while column in columns:
            column, number = f"{name}_{number}", number + 1
        columns[column] = None
    return tuple(columns)


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


_POINTS: Final = """CREATE TABLE points (
    run_id VARCHAR, started_at TIMESTAMP, variant VARCHAR, value DOUBLE, low DOUBLE, high DOUBLE,
    decision VARCHAR, changes VARCHAR[]
)"""


class History:
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
    ) -> ShownTrend:
        """Return the trend of a suite's score, pass_rate, latency, cost or tokens.

        `since`: runs of this time, or created after an aware time. Raises `UsageError` for an
        unknown suite, variant or metric.
        """
        if metric not in set(Metric):
            raise UsageError(f"unknown metric '{metric}'; known: {', '.join(Metric)}")
        after = datetime.now(UTC) - since if isinstance(since, timedelta) else since
        with SuiteHistory(self.store, suite, since=after) as history:
            return ShownTrend(history.trend(Metric(metric), variant))

    def close(self) -> None:
        """Close the database; relations of it cannot be read any more."""
        self._views.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of_suite(self, view: str, suite: str | None, order: str) -> Relation:
        relation = self._views.connection.view(view)
        if suite is not None:
            same = duckdb.ColumnExpression("suite") == duckdb.ConstantExpression(suite)
            relation = relation.filter(same)
        return relation.order(order)


class ShownTrend:
    """A trend: its points as values or as a relation, and a picture in a notebook."""

    def __init__(self, trend: Trend) -> None:
        self.trend = trend

    @property
    def points(self) -> tuple[TrendPoint, ...]:
        """The points, oldest first."""
        return self.trend.points

    @property
    def relation(self) -> Relation:
        """The points as a relation; times are in UTC."""
        connection = duckdb.connect(":memory:")
        connection.execute(_POINTS)
        rows = [
            (
                *(point.run_id, point.started_at.replace(tzinfo=None), point.variant),
                *(point.value, point.low, point.high, point.decision, list(point.changes)),
            )
            for point in self.points
        ]
        if rows:
            connection.executemany("INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        return connection.table("points")

    def df(self) -> Any:
        """Return the points as a pandas DataFrame."""
        from evalcore.sql.tables import data_frame

        return data_frame(self.relation)

    def svg(self) -> str:
        """Return the chart of the trend."""
        from evalcore.report.charts import chart_svg, trend_spec

        return chart_svg(trend_spec(self.trend)).decode()

    def _repr_html_(self) -> str:
        """Return the chart as an image: nothing in its data is ever executed."""
        data = base64.b64encode(self.svg().encode()).decode()
        return f'<img alt="trend" style="max-width:100%" src="data:image/svg+xml;base64,{data}">'
