"""The history for Python: DuckDB relations over the tables, trends that a notebook draws."""

from __future__ import annotations

import base64
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import _duckdb as duckdb

from evalcore.errors import UsageError
from evalcore.history.sync import sync
from evalcore.history.tables import open_history
from evalcore.history.trend import SuiteHistory
from evalcore.model.trend import Metric, Trend, TrendPoint
from evalcore.settings import read_settings
from evalcore.storage.address import open_store
from evalcore.storage.store import ObjectStore

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
        self._connection = open_history(store)

    def sql(self, text: str, **parameters: Any) -> duckdb.DuckDBPyRelation:
        """Return the answer to a query; `$name` in it stands for a parameter.

        The query may do what DuckDB can. For SQL that is not trusted there is `evalcore query`.
        """
        return self._connection.sql(text, params=parameters or None)

    def runs(self, suite: str | None = None) -> duckdb.DuckDBPyRelation:
        """Return the runs (of a suite), one row for each variant, oldest first."""
        return self._of_suite("runs", suite, "started_at, run_id, variant")

    def cases(self, suite: str | None = None) -> duckdb.DuckDBPyRelation:
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
        self._connection.close()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of_suite(self, view: str, suite: str | None, order: str) -> duckdb.DuckDBPyRelation:
        relation = self._connection.view(view)
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
    def relation(self) -> duckdb.DuckDBPyRelation:
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
