"""A suite over its runs: the trend of a figure, a case's outcomes, flaky cases, earlier runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.analytics.named import query_text
from evalcore.errors import UsageError
from evalcore.history.files import FILE_OPTIONS, HistoryViews, partition_suite, quoted
from evalcore.history.fingerprints import Fingerprint, describe_changes
from evalcore.model.suite import READY_AFTER_RUNS, QuarantineEntry
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


class SuiteHistory(HistoryViews):
    """The runs of one suite, asked several times; `close` it.

    `since` is aware: runs that were created then or later. `case_tables` says
    whether the table `cases` is opened, too. Raises `UsageError` for a suite that the history does
    not have.
    """

    def __init__(
        self,
        store: ObjectStore,
        suite: str,
        *,
        since: datetime | None = None,
        case_tables: bool = False,
    ) -> None:
        tables = ["runs", "cases"] if case_tables else ["runs"]
        super().__init__(store, suites=[suite], since=since, tables=tables)
        self.suite = suite
        if not self.paths:
            self.close()
            self.suite = _similar_suite(store, suite)
            super().__init__(store, suites=[self.suite], since=since, tables=tables)

    def trend(self, metric: Metric = Metric.SCORE, variant: str | None = None) -> Trend:
        """Return the trend of a figure, of all variants or of one; raises `UsageError`."""
        last: dict[str, Fingerprint] = {}
        points: list[TrendPoint] = []
        partial: list[TrendPoint] = []
        for run_id, started, name, decision, figure, part, *work in self._points(metric, variant):
            made_from = Fingerprint(*work)
            changes = describe_changes(last[name], made_from) if name in last else ()
            value, low, high = figure
            if metric is Metric.TOKENS and value is not None:
                value = int(value)
            point = TrendPoint(
                run_id, _utc(started), name, value, low, high, decision, changes, part
            )
            if part is None:
                points.append(point)
                last[name] = made_from
            else:
                partial.append(point)
        return Trend(self.suite, metric, tuple(points), tuple(partial))

    def case(self, case_id: str, variant: str | None = None) -> tuple[CaseHistory, ...]:
        """Return a case's outcomes for each of its groups and variants; raises `UsageError`."""
        rows = self._rows("history_case", case_id=case_id)
        kinds: dict[tuple[str | None, str], list[CaseOutcome]] = {}
        for row in rows:
            outcome = CaseOutcome(row[0], _utc(row[1]), *row[2:])
            if variant in {None, outcome.variant}:
                kinds.setdefault((outcome.case_group, outcome.variant), []).append(outcome)
        if not kinds:
            raise UsageError(self._unknown_case(case_id, variant))
        fingerprints = {
            (row[0], row[2]): Fingerprint(*row[6:]) for row in self._points(Metric.SCORE, variant)
        }
        return tuple(
            _case_history(case_id, tuple(outcomes), fingerprints) for outcomes in kinds.values()
        )

    def flaky(self, variant: str | None = None) -> tuple[FlakyCase, ...]:
        """Return the cases that differ without a change of their work, the most often first."""
        rows = self._rows("history_flaky", variant=variant)
        return tuple(
            FlakyCase(case, group, name, FlipRate(*between[:2]), FlipRate(*between[2:]))
            for case, group, name, *between in rows
        )

    def _points(self, metric: Metric, variant: str | None) -> list[tuple[Any, ...]]:
        """Return the rows of `history_trend.sql`, of all variants or of one."""
        points = self._rows("history_trend", metric=str(metric))
        chosen = [point for point in points if variant in {None, point[2]}]
        if variant is not None and not chosen:
            variants = sorted({point[2] for point in points})
            hint = did_you_mean(variant, variants)
            names = ", ".join(variants) or "none"
            raise UsageError(
                f"suite '{self.suite}' has no variant '{variant}'.{hint} It has: {names}"
            )
        return chosen

    def _rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        suite = partition_suite(self.suite)
        return self.rows(query_text(query), suite=suite, **parameters)

    def _unknown_case(self, case_id: str, variant: str | None) -> str:
        rows = self.rows("SELECT DISTINCT case_id FROM cases")
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
    failing = outcomes[passes[-1] + 1 :] if passes else outcomes
    identity = case_id, outcomes[0].case_group, outcomes[0].variant, outcomes, failing
    if not (passes and failing):
        return CaseHistory(*identity)
    last_pass, first = outcomes[passes[-1]], failing[0]
    before, after = (fingerprints[each.run_id, each.variant] for each in (last_pass, first))
    works = last_pass.work_sha256, first.work_sha256
    same_work = None if None in works else works[0] == works[1]
    return CaseHistory(*identity, last_pass, describe_changes(before, after), same_work)


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
    latest: dict[str, LatestRun] = {}
    for suite, run_id, decision, before, was, now in rows:
        run = latest.get(suite, LatestRun(run_id, decision, before, ()))
        changes = describe_changes(Fingerprint(**was), Fingerprint(**now)) if was else ()
        latest[suite] = run._replace(changes=tuple(dict.fromkeys((*run.changes, *changes))))
    return latest


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
    ready = {
        entry: tuple(name for name, case in rows if case == entry.case and entry.applies_to(name))
        for entry in entries
    }
    return {entry: names for entry, names in ready.items() if names}


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


def comparable_runs(
    views: HistoryViews,
    suite: str,
    *,
    cases_sha256: str,
    judges_sha256: str | None,
    replayed: bool,
) -> Iterator[tuple[str, str | None]]:
    """Yield a suite's runs, newest first, and why a run cannot be compared; None if it can.

    Runs have to share cases and judges, and whether answers come from recordings.
    """
    yield from views.rows(
        query_text("comparable_runs"),
        suite=partition_suite(suite),
        cases_sha256=cases_sha256,
        judges_sha256=judges_sha256,
        replayed=replayed,
    )


def write_past_runs(
    views: HistoryViews, suite: str, run_ids: Sequence[str], folder: Path
) -> dict[str, Path]:
    """Write the rows of these runs (oldest first) as Parquet files; return them by name."""
    files = {name: folder / f"{name}.parquet" for name in (RUNS_FILE, CASES_FILE)}
    for name, path in files.items():
        copied = f"COPY ({query_text(name)}) TO {quoted(str(path))} ({FILE_OPTIONS})"
        views.rows(copied, run_ids=list(run_ids), suite=partition_suite(suite))
    return files
