"""A suite over its runs: the trend of a figure, a case's outcomes, flaky cases, earlier runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.analytics.assertions import AssertionCounts, suite_assertion_counts
from evalcore.analytics.named import query_text
from evalcore.errors import UsageError
from evalcore.history.files import HistoryViews, partition_suite, quoted
from evalcore.history.fingerprints import Fingerprint, describe_changes
from evalcore.model.quarantine import READY_AFTER_RUNS, QuarantineEntry
from evalcore.model.summary import Metric, Trend, TrendPoint
from evalcore.statistics.intervals import wilson
from evalcore.storage.layout import suite_key
from evalcore.storage.store import ObjectStore
from evalcore.wording import did_you_mean


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
        interval = wilson(self.flips, self.chances) if self.chances else None
        return None if interval is None else (interval.low, interval.high)


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


class _RunPoint(NamedTuple):
    """A row of `history_trend.sql`: a figure of a variant in a run, and its interval's ends."""

    run_id: str
    started_at: datetime
    variant: str
    decision: str
    figure: tuple[float | None, float | None, float | None]
    part: str | None
    fingerprint: Fingerprint


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
        tables = [name for name, is_opened in opened.items() if is_opened]
        self._views = HistoryViews(store, suites=[suite], since=since, tables=tables)
        self.suite = suite
        if not self._views.paths:
            self.suite = _similar_suite(store, suite)
            self._views.close()
            self._views = HistoryViews(store, suites=[self.suite], since=since, tables=tables)

    def close(self) -> None:
        """Close the database."""
        self._views.close()

    def __enter__(self) -> SuiteHistory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def trend(self, metric: Metric = Metric.SCORE, variant: str | None = None) -> Trend:
        """Return the trend of a figure, of all variants or of one; raises `UsageError`."""
        last: dict[str, Fingerprint] = {}
        points: list[TrendPoint] = []
        partial: list[TrendPoint] = []
        for point in self._points(metric, variant):
            before = last.get(point.variant)
            changes = () if before is None else describe_changes(before, point.fingerprint)
            value, low, high = point.figure
            if metric is Metric.TOKENS and value is not None:
                value = int(value)
            (points if point.part is None else partial).append(
                TrendPoint(
                    point.run_id,
                    point.started_at,
                    point.variant,
                    value,
                    low,
                    high,
                    point.decision,
                    changes,
                    point.part,
                )
            )
            if point.part is None:
                last[point.variant] = point.fingerprint
        return Trend(self.suite, metric, tuple(points), tuple(partial))

    def case(self, case_id: str, variant: str | None = None) -> tuple[CaseHistory, ...]:
        """Return a case's outcomes for each of its groups and variants; raises `UsageError`."""
        rows = self._rows("history_case", case_id=case_id)
        outcomes = [CaseOutcome(row[0], _utc(row[1]), *row[2:]) for row in rows]
        if variant is not None:
            outcomes = [outcome for outcome in outcomes if outcome.variant == variant]
        if not outcomes:
            raise UsageError(self._unknown_case(case_id, variant))
        fingerprints = {
            (point.run_id, point.variant): point.fingerprint
            for point in self._points(Metric.SCORE, variant)
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
        with self._views.naming_damage():
            connection = self._views.connection
            return suite_assertion_counts(connection, partition_suite(self.suite), runs)

    def _points(self, metric: Metric, variant: str | None) -> list[_RunPoint]:
        rows = self._rows("history_trend", metric=str(metric))
        points = [
            _RunPoint._make((row[0], _utc(row[1]), *row[2:6], Fingerprint(*row[6:])))
            for row in rows
        ]
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

    def _rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        suite = partition_suite(self.suite)
        return self._views.rows(query_text(query), suite=suite, **parameters)

    def _unknown_case(self, case_id: str, variant: str | None) -> str:
        rows = self._views.rows("SELECT DISTINCT case_id FROM cases")
        hint = did_you_mean(case_id, [row[0] for row in rows])
        of = "" if variant is None else f" in variant '{variant}'"
        return f"the runs of suite '{self.suite}' have no case '{case_id}'{of}.{hint}"


def _similar_suite(store: ObjectStore, suite: str) -> str:
    """Return the suite of the history that shares its key with this name; raise `UsageError`."""
    with HistoryViews(store, tables=["runs"]) as views:
        rows = views.rows("SELECT DISTINCT suite FROM runs ORDER BY 1")
    suites = [str(row[0]) for row in rows]
    if suite in suites:
        return suite  # it has runs, of an earlier time
    same = [name for name in suites if suite and suite_key(name) == suite_key(suite)]
    if same:
        return same[0]
    hint = did_you_mean(suite, suites)
    existing = f"It has: {', '.join(suites[:10])}" if suites else "It has no runs that have ended"
    raise UsageError(f"the history of {store.url} has no suite '{suite}'.{hint} {existing}")


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC)


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


class LatestRun(NamedTuple):
    """The newest run of a suite that has ended: all variants together.

    `before` is the decision of the run before it, None for the first. `changes` says in short texts
    what differs between the two.
    """

    run_id: str
    decision: str
    before: str | None
    changes: tuple[str, ...]


def latest_runs(store: ObjectStore) -> Mapping[str, LatestRun]:
    """Return the newest run of each suite by the suite's name in the tables (`partition_suite`)."""
    with HistoryViews(store, tables=["runs"]) as views:
        rows = views.rows(query_text("history_latest"))
    suites: dict[str, list[tuple[Any, ...]]] = {}
    for suite, *point in rows:
        suites.setdefault(suite, []).append(tuple(point))
    return {suite: _latest(points) for suite, points in suites.items()}


def _latest(points: list[tuple[Any, ...]]) -> LatestRun:
    newest, _, decision, *_ = points[-1]
    earlier = {point[1]: point for point in points if point[0] != newest}
    changes: dict[str, None] = {}
    for run_id, variant, _, *after in points:
        if run_id == newest and variant in earlier:
            before = Fingerprint(*earlier[variant][3:])
            changes |= dict.fromkeys(describe_changes(before, Fingerprint(*after)))
    decisions = [point[2] for point in points if point[0] != newest]
    return LatestRun(newest, decision, decisions[-1] if decisions else None, tuple(changes))


def returning_cases(
    store: ObjectStore,
    entries: Sequence[QuarantineEntry],
    *,
    suites: Collection[str] | None = None,
    runs: int = READY_AFTER_RUNS,
) -> dict[QuarantineEntry, tuple[str, ...]]:
    """Return the entries whose case passed in the last `runs` runs that had it in quarantine.

    The values are the names of the suites in which it did. The history is not brought up to date.
    """
    if not entries:
        return {}
    cases = [entry.case for entry in entries]
    with HistoryViews(store, suites=suites, tables=["runs", "cases"]) as views:
        rows = views.rows(query_text("returning_cases"), cases=cases, most=runs)
    ready: dict[QuarantineEntry, tuple[str, ...]] = {}
    for entry in entries:
        names = tuple(s for s, case in rows if case == entry.case and entry.applies_to(s))
        if names:
            ready[entry] = names
    return ready


class CaseVariances(NamedTuple):
    """Of the last `runs` runs with the same cases: the variance of one iteration around its case's
    mean, and that of the true difference over cases since the work changed; None if not known.

    A change that moved no case differently from the others (one that was taken back, a comment)
    does not show how changes scatter: the difference is not known then, and not 0.
    """

    runs: int = 0
    noise: float | None = None
    difference: float | None = None


def read_case_variances(store: ObjectStore, suite: str, cases_sha256: str) -> CaseVariances:
    """Return the variances that the history of a suite shows."""
    with HistoryViews(store, suites=[suite], tables=["runs", "cases"]) as views:
        ((runs, noise, observed, iterations),) = views.rows(
            query_text("case_variances"), suite=partition_suite(suite), cases_sha256=cases_sha256
        )
    difference = observed or None
    if difference is not None and noise is not None:
        difference = max(0.0, difference - 2 * noise / iterations)
    return CaseVariances(runs, noise, difference)


CASES_FILE = "past_cases"
RUNS_FILE = "past_runs"


class ComparedWork(NamedTuple):
    """What runs have to share to be compared: the suite's name, its cases and judges, and whether
    answers come from recordings.
    """

    suite: str
    cases_sha256: str
    judges_sha256: str | None
    replayed: bool


class ListedRun(NamedTuple):
    """A run of the history, and why it cannot be compared; None if it can."""

    run_id: str
    reason: str | None


class PastRows:
    """The tables of the history of one suite, as they are at this moment; a context."""

    def __init__(self, store: ObjectStore, suite: str) -> None:
        self._suite = partition_suite(suite)
        self._views = HistoryViews(store, suites=[suite], tables=["runs", "cases"])

    def __enter__(self) -> PastRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._views.close()

    def comparable(self, work: ComparedWork) -> Iterator[ListedRun]:
        """Yield the suite's runs, newest first."""
        parameters = work._asdict() | {"suite": self._suite}
        yield from map(
            ListedRun._make, self._views.rows(query_text("comparable_runs"), **parameters)
        )

    def write(self, run_ids: list[str], folder: Path) -> dict[str, Path]:
        """Write the rows of these runs (oldest first) as Parquet files; return them by name."""
        files = {name: folder / f"{name}.parquet" for name in (RUNS_FILE, CASES_FILE)}
        for name, path in files.items():
            target = quoted(str(path))
            copied = f"COPY ({query_text(name)}) TO {target} (FORMAT parquet, COMPRESSION zstd)"
            self._views.rows(copied, run_ids=run_ids, suite=self._suite)
        return files
