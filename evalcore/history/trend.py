"""A suite over its runs: the trend of a figure, a case's outcomes, flaky cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from evalcore.analytics.assertions import AssertionCounts, suite_assertion_counts
from evalcore.analytics.named import query_text
from evalcore.errors import UsageError
from evalcore.history.changes import Fingerprint, describe_changes
from evalcore.history.locations import partition_suite
from evalcore.history.tables import open_history
from evalcore.history.unreadable_files import damage_located
from evalcore.mistakes.wording import did_you_mean
from evalcore.model.trend import Metric, Trend, TrendPoint
from evalcore.statistics.intervals import wilson
from evalcore.storage.layout import suite_key
from evalcore.storage.store import ObjectStore


class RunPoint(NamedTuple):
    """A row of `history_trend.sql`: one variant of one run."""

    run_id: str
    started_at: datetime
    variant: str
    decision: str
    score: float | None
    score_low: float | None
    score_high: float | None
    pass_rate: float | None
    pass_rate_low: float | None
    pass_rate_high: float | None
    cases: int
    passed_cases: int
    p50_latency_ms: float | None
    p50_latency_low_ms: float | None
    p50_latency_high_ms: float | None
    cost_usd: float | None
    cost_low_usd: float | None
    cost_high_usd: float | None
    tokens: int | None
    tokens_low: float | None
    tokens_high: float | None
    part: str | None
    fingerprint: Fingerprint


class CaseOutcome(NamedTuple):
    """A case of one variant in one run. `work_sha256` is the same where the same work was done."""

    run_id: str
    started_at: datetime
    case_group: str | None
    variant: str
    passed: bool
    score: float | None
    iterations: int
    passed_iterations: int
    errors: int
    blocked: int
    work_sha256: str | None
    quarantined: bool


class CaseHistory(NamedTuple):
    """A case of one variant over the runs that have it, oldest first.

    If it fails now: `failing` are the outcomes since it does without a break, `last_pass` the one
    before, `changes` what changed between the two, `same_work` whether their work is the same (None
    where that is unknown).
    """

    case_id: str
    case_group: str | None
    variant: str
    outcomes: tuple[CaseOutcome, ...]
    failing: tuple[CaseOutcome, ...] = ()
    last_pass: CaseOutcome | None = None
    changes: tuple[str, ...] = ()
    same_work: bool | None = None


class FlipRate(NamedTuple):
    """How often something differed: `flips` of `chances`, with its 95 % interval (Wilson)."""

    flips: int
    chances: int

    @property
    def rate(self) -> float | None:
        """The share; None without a chance."""
        return self.flips / self.chances if self.chances else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The ends of the interval; None without a chance."""
        return wilson_ends(self.flips, self.chances)


class FlakyCase(NamedTuple):
    """A case that differs without a change of its work.

    `iterations`: of the runs with several iterations, those in which these differ. `runs`: of the
    neighbouring runs with the same work, those that differ. Runs with errors do not count.
    """

    case_id: str
    case_group: str | None
    variant: str
    iterations: FlipRate
    runs: FlipRate


def wilson_ends(successes: int, trials: int) -> tuple[float, float] | None:
    """Return the 95 % interval (Wilson) of a share; None without trials."""
    if not trials:
        return None
    interval = wilson(successes, trials)
    return None if interval is None else (interval.low, interval.high)


_VALUES: Final[Mapping[Metric, Callable[[RunPoint], float | None]]] = {
    Metric.SCORE: lambda point: point.score,
    Metric.PASS_RATE: lambda point: point.pass_rate,
    Metric.LATENCY: lambda point: point.p50_latency_ms,
    Metric.COST: lambda point: point.cost_usd,
    Metric.TOKENS: lambda point: point.tokens,
}


class SuiteHistory:
    """The runs of one suite, asked several times; `close` it.

    `since` is aware: runs that were created then or later. `case_tables` and `assertion_tables` say
    whether the tables `cases` and `assertions` are opened, too. Raises `UsageError` for a suite
    that the history does not have.
    """

    def __init__(
        self,
        store: ObjectStore,
        suite: str,
        *,
        since: datetime | None = None,
        case_tables: bool = False,
        assertion_tables: bool = False,
    ) -> None:
        opened = {"runs": True, "cases": case_tables, "assertions": assertion_tables}
        tables = {name for name, is_opened in opened.items() if is_opened}
        self._connection = open_history(store, suites=[suite], since=since, tables=tables)
        self._store = store
        self.suite = suite
        if not self._has_runs():
            self.suite = _similar_suite(store, suite)
            self._connection.close()
            self._connection = open_history(store, suites=[self.suite], since=since, tables=tables)
        self._since = since

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def __enter__(self) -> SuiteHistory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trend(self, metric: Metric = Metric.SCORE, variant: str | None = None) -> Trend:
        """Return the trend of a figure, of all variants or of one; raises `UsageError`."""
        points = self._points(variant)
        last: dict[str, Fingerprint] = {}
        trend_points, partial = [], []
        for point in points:
            before = last.get(point.variant)
            changes = () if before is None else describe_changes(before, point.fingerprint)
            low, high = _bounds(metric, point)
            trend_point = TrendPoint(
                point.run_id,
                point.started_at,
                point.variant,
                _VALUES[metric](point),
                low,
                high,
                point.decision,
                changes,
                point.part,
            )
            if point.part is not None:
                partial.append(trend_point)
                continue
            last[point.variant] = point.fingerprint
            trend_points.append(trend_point)
        return Trend(self.suite, metric, tuple(trend_points), tuple(partial))

    def case(self, case_id: str, variant: str | None = None) -> tuple[CaseHistory, ...]:
        """Return a case's outcomes for each of its groups and variants; raises `UsageError`."""
        rows = self._rows("history_case", case_id=case_id)
        outcomes = [CaseOutcome(row[0], _utc(row[1]), *row[2:]) for row in rows]
        if variant is not None:
            outcomes = [outcome for outcome in outcomes if outcome.variant == variant]
        if not outcomes:
            raise UsageError(self._unknown_case(case_id, variant))
        fingerprints = {
            (point.run_id, point.variant): point.fingerprint for point in self._points(variant)
        }
        kinds = dict.fromkeys((outcome.case_group, outcome.variant) for outcome in outcomes)
        return tuple(
            _case_history(
                case_id,
                tuple(o for o in outcomes if (o.case_group, o.variant) == kind),
                fingerprints,
            )
            for kind in kinds
        )

    def flaky(self, variant: str | None = None) -> tuple[FlakyCase, ...]:
        """Return the cases that differ without a change of their work, the most often first."""
        rows = self._rows("history_flaky", variant=variant)
        return tuple(
            FlakyCase(case, group, name, FlipRate(*between[:2]), FlipRate(*between[2:]))
            for case, group, name, *between in rows
        )

    def assertions(self, runs: Sequence[str]) -> tuple[AssertionCounts, ...]:
        """Return how often each assertion passed and failed in these runs, by their ids.

        Only with the history opened for its table `assertions`.
        """
        with damage_located(self._store):
            return suite_assertion_counts(self._connection, partition_suite(self.suite), runs)

    def _points(self, variant: str | None) -> list[RunPoint]:
        rows = self._rows("history_trend")
        points = list(run_points(rows))
        if variant is None:
            return points
        chosen = [point for point in points if point.variant == variant]
        if not chosen:
            variants = sorted({point.variant for point in points})
            hint = did_you_mean(variant, variants)
            names = ", ".join(variants) or "none"
            raise UsageError(
                f"suite '{self.suite}' has no variant '{variant}'.{hint} It has: {names}"
            )
        return chosen

    def _has_runs(self) -> bool:
        return bool(self._rows("history_trend"))

    def _rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        values = {"suite": partition_suite(self.suite), **parameters}
        with damage_located(self._store):
            return self._connection.execute(query_text(query), values).fetchall()

    def _unknown_case(self, case_id: str, variant: str | None) -> str:
        with damage_located(self._store):
            rows = self._connection.execute("SELECT DISTINCT case_id FROM cases").fetchall()
        hint = did_you_mean(case_id, [row[0] for row in rows])
        of = "" if variant is None else f" in variant '{variant}'"
        return f"the runs of suite '{self.suite}' have no case '{case_id}'{of}.{hint}"


def _similar_suite(store: ObjectStore, suite: str) -> str:
    """Return the suite of the history that shares its key with this name; raise `UsageError`."""
    with open_history(store, tables={"runs"}) as connection, damage_located(store):
        rows = connection.execute("SELECT DISTINCT suite FROM runs ORDER BY 1").fetchall()
    suites = [str(row[0]) for row in rows]
    if suite in suites:
        return suite  # it has runs, of an earlier time
    same = [name for name in suites if suite and suite_key(name) == suite_key(suite)]
    if same:
        return same[0]
    hint = did_you_mean(suite, suites)
    existing = f"It has: {', '.join(suites[:10])}" if suites else "It has no runs that have ended"
    raise UsageError(f"the history of {store.url} has no suite '{suite}'.{hint} {existing}")


def run_points(rows: list[tuple[Any, ...]]) -> Iterator[RunPoint]:
    """Yield the rows of `history_trend.sql`."""
    plain = len(RunPoint._fields) - 2
    for run_id, started_at, *values in rows:
        *prints, part = values[plain - 2 :]
        figures = values[: plain - 2]
        fingerprint = Fingerprint._make(prints)
        yield RunPoint._make((run_id, _utc(started_at), *figures, part, fingerprint))


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


def _bounds(metric: Metric, point: RunPoint) -> tuple[float | None, float | None]:
    match metric:
        case Metric.SCORE:
            return point.score_low, point.score_high
        case Metric.PASS_RATE if point.pass_rate_low is not None:
            return point.pass_rate_low, point.pass_rate_high
        case Metric.PASS_RATE:  # rows of earlier versions have no ends
            return wilson_ends(point.passed_cases, point.cases) or (None, None)
        case Metric.LATENCY:
            return point.p50_latency_low_ms, point.p50_latency_high_ms
        case Metric.COST:
            return point.cost_low_usd, point.cost_high_usd
        case Metric.TOKENS:
            return point.tokens_low, point.tokens_high


def _case_history(
    case_id: str,
    outcomes: tuple[CaseOutcome, ...],
    fingerprints: Mapping[tuple[str, str], Fingerprint],
) -> CaseHistory:
    passes = [number for number, outcome in enumerate(outcomes) if outcome.passed]
    first_failing = passes[-1] + 1 if passes else 0
    failing = outcomes[first_failing:]
    last_pass = outcomes[passes[-1]] if passes and failing else None
    history = CaseHistory(
        case_id, outcomes[0].case_group, outcomes[0].variant, outcomes, failing, last_pass
    )
    if last_pass is None:
        return history
    before = fingerprints[last_pass.run_id, last_pass.variant]
    after = fingerprints[failing[0].run_id, failing[0].variant]
    works = last_pass.work_sha256, failing[0].work_sha256
    return history._replace(
        changes=describe_changes(before, after),
        same_work=None if None in works else works[0] == works[1],
    )
