"""AGGREGATE, DECIDE, REPORT: what a run whose shards all have results came to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.analytics.integrity import (
    check_counts,
    check_plan,
    require_planned,
    sealed,
    stored_parts,
    whole_parts,
)
from evalcore.errors import EvalError, ObjectNotFoundError, RunConflictError
from evalcore.model.mode import Mode
from evalcore.model.run import Decision, Manifest, Plan, State
from evalcore.model.suite import Case, Suite, quarantine_of
from evalcore.model.summary import Failure, Metric, Summary, Trend, TrendPoint
from evalcore.pipeline.compare import ReportSources, open_baseline
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.gates import (
    DecideOptions,
    decided_report,
    has_evaluated_nothing,
)
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.reuse import open_past_runs
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import require_epoch, tell_end
from evalcore.planning.shards import pending_shards
from evalcore.report.document import Report, RunFacts, report_chunks
from evalcore.report.view import CaseFacts, ListedCase, question_of, shown_text
from evalcore.statistics.intervals import estimate_mean, estimate_rate
from evalcore.storage.layout import iso_time
from evalcore.storage.runs import PART, StoredRun, partial_reasons, reasons_of_part
from evalcore.storage.store import ObjectStore, at_once

if TYPE_CHECKING:
    from evalcore.analytics.summary import Aggregates


_HISTORY_RUNS: Final = "history/runs/"
_MOST_POINTS: Final = 365


@dataclass(eq=False)
class RunView:
    """A run's report together with the tables behind it, open as long as its context.

    It is what forms of the report read (`report.view.ReportView`); `root` is the folder that their
    readers know files from. `is_stored` says that the report in the store is this one.
    """

    run: StoredRun
    plan: Plan
    report: Report
    tables: Aggregates
    parts: Mapping[int, Path]
    root: Path | None = None
    is_stored: bool = False

    def json(self, *, newline: str = "\n") -> bytes:
        """Return the whole report as JSON in UTF-8; with `newline=""` on one line."""
        if self.is_stored:
            text = self.run.store.get(self.run.keys.report).data
        else:
            text = b"".join(report_chunks(self.report, self.tables.report_cases()))
        # Within JSON texts a line end is escaped.
        return text if newline else text.replace(b"\n", b"") + b"\n"

    def export(self, row_format: str, path: Path, *, append: bool = False) -> None:
        """Write a row for each work item to a file: `jsonl`, `csv` or `parquet`.

        The rows are streamed. `append` adds JSON lines to a file. Raises `UsageError` if the file
        cannot be written.
        """
        from evalcore.analytics.export import ExportFacts, export_rows

        facts = ExportFacts(
            self.report.suite,
            self.run.keys.folder,
            self.plan,
            lambda: (shown_text(case.input) for case in self.run.all_cases(self.plan)),
        )
        export_rows(self.tables.connection, facts, row_format, path, append=append)

    def failures(self, most: int) -> tuple[Failure, ...]:
        """Return the first items that did not pass: errors, failed, blocked, then the others."""
        counts = self.report.summary.counts
        return () if counts.passed == counts.planned else self.tables.failures(most)

    def reasons(self) -> list[tuple[str, int]]:
        """Return why items were skipped, and how many for each reason; the most frequent first."""
        return self.tables.reasons() if self.report.summary.counts.skipped else []

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the report's cases (`cases[]` of report.json), with the outputs of all of them."""
        for batch in self.tables.report_cases(passed_outputs=True):
            yield from map(orjson.loads, batch)

    def listed(self) -> Iterator[ListedCase]:
        """Yield the report's cases in the order of the plan, the variants of a case together."""
        planned, current = self.run.all_cases(self.plan), None
        for record in self.records():
            # Both are in the order of the plan, so each case is looked at once.
            identity = record["id"], record["group"]
            if current is None or (current.id, current.group) != identity:
                current = next((c for c in planned if (c.id, c.group) == identity), None)
            yield ListedCase(record, _facts(current))

    def trend(self) -> Trend | None:
        """Return the suite's scores up to this run; None without an earlier run in the history.

        The history is taken as it is, and what cannot be read of it is left out. A run that is not
        whole is no point of it.
        """
        store, report = self.run.store, self.report
        if next(iter(store.list(_HISTORY_RUNS)), None) is None:
            return None
        from evalcore.history.trend import SuiteHistory

        try:
            with SuiteHistory(store, report.suite) as history:
                trend = history.trend(Metric.SCORE)
        except EvalError:
            return None
        started_at = datetime.fromisoformat(report.run.started_at)
        variants = {variant.variant for variant in report.summary.variants}
        earlier = [
            point
            for point in trend.points
            if point.started_at <= started_at and point.variant in variants
        ]
        if not any(point.run_id != report.run.id for point in earlier):
            return None
        is_partial = partial_reasons(self.run.known_manifest())
        if not is_partial and not any(point.run_id == report.run.id for point in earlier):
            decision = str(report.decision)
            for each in report.summary.variants:
                low, high = estimate_mean(each.score_sample)[:2]
                point = (report.run.id, started_at, each.variant, each.score, low, high, decision)
                earlier.append(TrendPoint(*point))
        return replace(trend, points=tuple(earlier[-_MOST_POINTS * len(variants) :]))

    @property
    def source_file(self) -> str:
        """The suite's file, as a reader who stands in `root` names it."""
        source = self.run.definition.source
        file = Path(source.folder) / Path(source.path).name
        if self.root is not None and file.is_relative_to(self.root):
            return file.relative_to(self.root).as_posix()
        return source.path


def _facts(case: Case | None) -> CaseFacts:
    if case is None:
        return CaseFacts()
    question = question_of(case.input)
    expected = shown_text(case.expected_output)
    return CaseFacts(shown_text(case.input), expected, case.tags, question)


@contextmanager
def finish_run(
    run: StoredRun, *, now: datetime, options: DecideOptions | None = None
) -> Iterator[RunView]:
    """Aggregate, decide and report a run whose shards all have results; give its view.

    The report is written before the manifest's final state, which speaks of it. Raises
    `RunConflictError` if shards are missing, or if another process has taken the run over since
    this one executed it.
    """
    epoch = run.known_manifest().epoch
    manifest, has_labels = _read_complete(run)
    require_epoch(manifest, epoch)
    facts = {**manifest.execution, **_budget_facts(run, manifest)}
    ended = replace(
        manifest,
        started_at=manifest.started_at or manifest.created_at,
        ended_at=iso_time(now),
        execution=facts,
    )
    with (
        at_once(run.store) as starts,
        _view(
            run,
            ended,
            has_labels,
            range(manifest.plan.shards),
            starts(lambda: check_plan(run, manifest, thorough=False)),
            options or DecideOptions(),
        ) as view,
    ):
        summary = view.report.summary
        facts |= _figures(summary)
        skipped = dict(view.reasons())
        part = reasons_of_part(run.definition, summary.counts, skipped)
        if not part and has_evaluated_nothing(run.definition, summary):
            part = ("nothing was evaluated",)
        facts[PART] = part
        view.report = replace(view.report, run=replace(view.report.run, part=part))
        run.store.put(run.keys.report, report_chunks(view.report, view.tables.report_cases()))
        view.is_stored = True
        final: dict[str, Any] = {
            "state": State.COMPLETED,
            "started_at": ended.started_at,
            "ended_at": ended.ended_at,
            "counts": asdict(summary.counts),
            "decision": view.report.decision,
            "execution": facts,
            "parts": stored_parts(manifest, view.parts),
        }

        def completed(now: Manifest) -> Manifest:
            if now.state is State.COMPLETED:
                return now
            require_epoch(now, epoch)
            return replace(now, **final)

        settled = run.update(completed)
        tell_end(settled, summary.total_cost_usd)
        yield view


def _read_complete(run: StoredRun) -> tuple[Manifest, Callable[[], bool]]:
    """Return manifest and whether there are labels; raise `RunConflictError` if shards lack."""
    with at_once(run.store) as starts:
        written = starts(run.written_shards)
        has_labels = starts(run.has_labels)
        manifest = run.manifest()
        missing = pending_shards(manifest.plan, written())
        if missing:
            raise RunConflictError(
                f"run {run.run_id} is not complete: {len(missing)} of {manifest.plan.shards} "
                f"shards have no result; `evalcore run --resume {run.run_id}` executes them"
            )
    return manifest, has_labels


def _figures(summary: Summary) -> dict[str, Any]:
    """Return what listings show of a run without reading its report; None is not measured."""
    rate = estimate_rate(summary.pass_sample)
    return {
        "p50_latency_ms": summary.p50_latency_ms,
        "score": summary.score,
        "pass_rate": summary.pass_rate,
        "pass_rate_interval": None if rate.low is None else [rate.low, rate.high],
        "cost_usd": summary.total_cost_usd,
    }


def _budget_facts(run: StoredRun, manifest: Manifest) -> dict[str, Any]:
    """Return what the run has spent of its budget, over all attempts; nothing without one."""
    limits = run.definition.limits
    if not limits.budgeted or manifest.mode == Mode.REPLAY:
        return {}
    from evalcore.execution.shared import decode_limits

    try:
        stored = run.store.get(run.keys.limits)
    except ObjectNotFoundError:
        return {}
    state = decode_limits(stored.data, run.keys.limits)
    bounds = {"max_cost_usd": limits.max_cost_usd, "max_tokens": limits.max_tokens}
    return {
        "budget": {
            **bounds,
            "billed": state.confirmed._asdict(),
            "unsettled": state.unsettled._asdict(),
        }
    }


@contextmanager
def view_run(run: StoredRun) -> Iterator[RunView]:
    """Give the view of a completed run; everything comes from the store.

    Raises `DamagedRunError` unless each planned item has its row.
    """
    run = sealed(run)
    manifest = run.manifest()
    require_planned(manifest)
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(
            f"run {run.run_id} is {manifest.state}; `evalcore run --resume {run.run_id}` ends it"
        )
    with at_once(run.store) as starts:
        check = starts(lambda: check_plan(run, manifest))
        written, has_labels = starts(run.written_shards), starts(run.has_labels)
        check()
        shards = written()
    with _view(run, manifest, has_labels, shards) as view:
        check_counts(manifest, asdict(view.report.summary.counts))
        yield view


@contextmanager
def _view(
    run: StoredRun,
    manifest: Manifest,
    has_labels: Callable[[], bool],
    written: Collection[int],
    check_plan: Callable[[], None] = lambda: None,
    options: DecideOptions | None = None,
) -> Iterator[RunView]:
    """Aggregate and decide; the manifest has its times, and `check_plan` raises if the plan is
    damaged.

    Without options the run has been decided: custom gates keep what the stored report says.
    """
    with ExitStack() as stack:
        comparison, no_baseline = stack.enter_context(open_baseline(run, manifest))
        past = stack.enter_context(open_past_runs(run, manifest))
        parts = stack.enter_context(whole_parts(run, manifest, written=written))
        check_plan()
        sources = ReportSources(run, manifest, [*parts.values()], comparison, past, no_baseline)
        tables = stack.enter_context(sources.aggregates())
        undecided = _undecided(sources, tables, has_labels)
        report = decided_report(sources, tables, undecided, options)
        yield RunView(run, manifest.plan, report, tables, parts)


def _undecided(
    sources: ReportSources, tables: Aggregates, has_labels: Callable[[], bool]
) -> Report:
    """Return the report of the rows as it is before the gates have decided."""
    definition = sources.run.definition
    quarantine = quarantine_of(sources.manifest.settings)
    tables.mark(quarantine.case_ids)
    summary = sources.summary(tables)
    if has_labels():
        summary = replace(summary, agreement=tables.agreement())
    return Report(
        run=_run_facts(sources.manifest),
        suite=definition.name,
        format=definition.format,
        decision=Decision.INCONCLUSIVE,
        threshold=definition.policy.threshold,
        summary=summary,
        gates=(),
        cases_complete=tables.complete,
        quarantine=quarantine,
    )


def _run_facts(manifest: Manifest) -> RunFacts:
    started = manifest.started_at or manifest.created_at
    ended = manifest.ended_at or started
    duration = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
    return RunFacts(
        id=manifest.id,
        mode=manifest.mode,
        started_at=started,
        ended_at=ended,
        # Clocks of two machines may have said when it began and when it ended.
        duration_s=max(0.0, round(duration.total_seconds(), 3)),
        reexecuted=int(manifest.execution.get("reexecuted", 0)),
        engine=dict(manifest.engine),
        budget=manifest.execution.get("budget"),
        reused=tuple(manifest.settings.get("reused") or ()),
        evidence=manifest.settings.get("evidence"),
        part=tuple(manifest.execution.get(PART) or ()),
    )


@contextmanager
def evaluate(
    suite: Suite,
    store: ObjectStore,
    options: ExecuteOptions | None = None,
    plan_options: PlanOptions | None = None,
    decide: DecideOptions | None = None,
) -> Iterator[RunView]:
    """Plan, execute and finish a run of the suite in this process; give its view.

    Custom gates may import what targets may, unless `decide` says otherwise.
    """
    run = plan_run(suite, store, plan_options, now=datetime.now(UTC))
    execute_run(run, options)
    options = options or ExecuteOptions()
    decide = decide or DecideOptions(options.imports, options.objects)
    with finish_run(run, now=datetime.now(UTC), options=decide) as view:
        yield view


@dataclass(frozen=True)
class StoredCases:
    """The cases of a run as they stand in its plan (`model.suite.CaseSource`)."""

    run: StoredRun
    plan: Plan

    def __iter__(self) -> Iterator[Case]:
        return self.run.all_cases(self.plan)

    def __len__(self) -> int:
        return self.plan.cases

    def parts(self) -> Iterator[bytes]:
        """Yield the plan's parts as they are."""
        return map(self.run.plan_part, range(self.plan.parts))

    def code_names(self) -> frozenset[str]:
        """Return the code whose digests the plan has."""
        return frozenset(self.run.definition.code)


@contextmanager
def decide_again(run: StoredRun, options: ExecuteOptions | None = None) -> Iterator[RunView]:
    """Grade a completed run again with the labels there are, as a new run; give its view.

    Results of other checks stay as they are. Raises `RunConflictError` unless the run is completed.
    """
    manifest = run.manifest()
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(f"run {run.run_id} is {manifest.state}; it has to end first")
    options = options or ExecuteOptions()
    suite = Suite(run.definition, StoredCases(run, manifest.plan))
    plan = PlanOptions(mode=manifest.mode, reuse=run.run_id, is_stored=True)
    again = plan_run(suite, run.store, plan, now=datetime.now(UTC))
    execute_run(again, options)
    decide = DecideOptions(options.imports, options.objects, options.isolation)
    with finish_run(again, now=datetime.now(UTC), options=decide) as view:
        yield view
