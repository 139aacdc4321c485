"""Metrics of the service in Prometheus' text format."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sqlalchemy import func, select

from evalcore.service.db import Database
from evalcore.service.models import FINAL, LifecycleStatus
from evalcore.service.tables import EvalResultRow, EvalRunRow

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_OPEN: Final = tuple(status for status in LifecycleStatus if status not in FINAL)
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ServiceMetrics:
    """What one process counts; each application has its own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "evalcore_http_requests",
            "Requests by route, method and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.seconds = Histogram(
            "evalcore_http_request_seconds",
            "How long requests took.",
            ("method", "route"),
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.results = Counter(
            "evalcore_eval_results",
            "Results by status and verdict.",
            ("status", "verdict"),
            registry=self.registry,
        )
        self.open_runs = Gauge(
            "evalcore_open_eval_runs", "Runs that have not ended.", registry=self.registry
        )
        self.open_results = Gauge(
            "evalcore_open_eval_results", "Children that have not ended.", registry=self.registry
        )

    def count_result(self, status: str, verdict: str | None, count: int = 1) -> None:
        """Count results that have become final; those without a verdict count as `none`."""
        self.results.labels(str(status), str(verdict or "none")).inc(count)

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request by the template of its route."""
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(method, route).observe(seconds)


async def exposition(metrics: ServiceMetrics, database: Database) -> bytes:
    """Return all metrics; the gauges are read from the database."""
    # Only runs that have not ended have children that have not: the others are not read.
    open_runs = select(EvalRunRow.id).where(EvalRunRow.status.in_(_OPEN))
    open_results = select(func.count(EvalResultRow.id)).where(
        EvalResultRow.run_id.in_(open_runs), EvalResultRow.status.in_(_OPEN)
    )
    async with database.reading() as session:
        runs = await session.scalar(select(func.count()).select_from(open_runs.subquery()))
        metrics.open_runs.set(runs or 0)
        metrics.open_results.set(await session.scalar(open_results) or 0)
    return generate_latest(metrics.registry)
