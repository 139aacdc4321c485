"""AGGREGATE, DECIDE, REPORT: what a run whose shards all have results came to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalcore.analytics.integrity import (
    check_counts,
    check_plan,
    require_planned,
    sealed,
    stored_parts,
    whole_parts,
)
from evalcore.errors import ObjectNotFoundError, RunConflictError
from evalcore.execution.worker import ShardReceipt
from evalcore.model.gate import Decision
from evalcore.model.quarantine import quarantine_of
from evalcore.model.run import Manifest, Mode, Plan, State
from evalcore.model.scoring import Note, ScriptScores
from evalcore.model.steady_clock import SteadyClock
from evalcore.model.suite import Case, Suite
from evalcore.model.summary import Failure, Summary
from evalcore.pipeline.compare import open_baseline
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.gates import (
    DecideOptions,
    ReportSources,
    decided_report,
    has_evaluated_nothing,
)
from evalcore.pipeline.plan import PlanOptions, plan_run
from evalcore.pipeline.reuse import open_past_runs
from evalcore.pipeline.session import ExecuteOptions
from evalcore.pipeline.states import execution_facts, require_epoch, tell_end
from evalcore.planning.shards import pending_shards
from evalcore.report.document import Report, RunFacts, report_chunks
from evalcore.report.view import shown_text
from evalcore.statistics.intervals import estimate_rate
from evalcore.storage.layout import iso_time
from evalcore.storage.runs import PART, StoredRun, reasons_of_part
from evalcore.storage.store import ObjectStore, at_once

if TYPE_CHECKING:
    from evalcore.analytics.summary import Aggregates


@dataclass(eq=False)
class RunView:
    """A run's report together with the tables behind it, open as long as its context."""

    run: StoredRun
    plan: Plan
    report: Report
    tables: Aggregates
    parts: Mapping[int, Path]
    _json: tuple[Report, bytes] | None = field(default=None, init=False, repr=False)

    def json(self, *, newline: str = "\n") -> bytes:
        """Return the whole report as JSON in UTF-8; with `newline=""` on one line."""
        if self._json is None or self._json[0] is not self.report:
            self._json = self.report, b"".join(self.json_chunks())
        text = self._json[1]
        # Within JSON texts a line end is escaped.
        return text if newline else text.replace(b"\n", b"") + b"\n"

    def json_chunks(self) -> Iterator[bytes]:
        """Yield what `json` returns piece by piece, without keeping it."""
        if self._json is not None and self._json[0] is self.report:
            return iter((self._json[1],))
        return report_chunks(self.report, self.tables.report_cases())

    def cases(self) -> Iterator[list[str]]:
        """Yield the report's cases as JSON texts, in batches, with the outputs of all of them."""
        return self.tables.report_cases(passed_outputs=True)

    def reasons(self) -> list[tuple[str, int]]:
        """Return why items were skipped, and how many for each reason; the most frequent first."""
        return self.tables.reasons()

    def script_scores(self, *, detail: bool) -> ScriptScores:
        """Return the scores of a script suite's run; with `detail` those of each iteration."""
        return self.tables.script_scores(detail=detail)

    def script_notes(self) -> tuple[Note, ...]:
        """Return the errors and warnings of a script suite's tests, in the order of the plan."""
        return self.tables.script_notes()

    def failures(self, most: int) -> tuple[Failure, ...]:
        """Return the first work items that did not pass: errors, failed, blocked, the rest."""
        return self.tables.failures(most)

    def export(self, row_format: str, path: Path, *, append: bool = False) -> None:
        """Write a row for each work item to a file: `jsonl`, `csv` or `parquet`.

        The rows are streamed. `append` adds JSON lines to a file. Raises `UsageError` if the file
        cannot be written.
        """
        from evalcore.analytics.export import ExportFacts, export_rows

        facts = ExportFacts(self.report.suite, self.run.keys.folder, self.plan, self._inputs)
        export_rows(self.tables.connection, facts, row_format, path, append=append)

    def _inputs(self) -> Iterator[str | None]:
        for part in range(self.plan.parts):
            for case in self.run.cases(part, self.plan):
                yield shown_text(case.input)


@contextmanager
def finish_run(
    run: StoredRun,
    receipts: Sequence[ShardReceipt],
    *,
    now: datetime,
    options: DecideOptions | None = None,
    keep_json: bool = False,
) -> Iterator[RunView]:
    """Aggregate, decide and report a run whose shards all have results; give its view.

    `keep_json` spares the view to make the JSON again that is stored here.
    The report is written before the manifest's final state, which speaks of it. Raises
    `RunConflictError` if shards are missing, or if another process has taken the run over since
    this one executed it.
    """
    epoch = run.known_manifest().epoch
    manifest, history, has_labels = _read_complete(run, receipts)
    require_epoch(manifest, epoch)
    facts = execution_facts(manifest, receipts) | history | _budget_facts(run, manifest)
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
        skipped = dict(view.reasons()) if summary.counts.skipped else {}
        part = reasons_of_part(run.definition, summary.counts, skipped)
        if not part and has_evaluated_nothing(run.definition, summary):
            part = ("nothing was evaluated",)
        facts[PART] = part
        view.report = replace(view.report, run=replace(view.report.run, part=part))
        _store_report(view, keep_json=keep_json)
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
        if settled.ended_at != ended.ended_at:
            # Another process has ended the run just before; all that is stored says the same.
            view.report = replace(view.report, run=_run_facts(settled))
            _store_report(view, keep_json=keep_json)
        tell_end(settled, summary.total_cost_usd)
        yield view


def _read_complete(
    run: StoredRun, receipts: Sequence[ShardReceipt]
) -> tuple[Manifest, dict[str, Any], Callable[[], bool]]:
    """Return the manifest, what the store knows of the execution, and whether there are labels.

    Raises `RunConflictError` if shards are missing.
    """
    with at_once(run.store) as starts:
        written = starts(run.written_shards)
        has_labels = starts(run.has_labels)
        manifest = run.manifest()
        plan = manifest.plan
        missing = pending_shards(plan, written())
        if missing:
            raise RunConflictError(
                f"run {run.run_id} is not complete: {len(missing)} of {plan.shards} shards have "
                f"no result; `evalcore run --resume {run.run_id}` executes them"
            )
    facts: dict[str, Any] = {"reexecuted": manifest.execution.get("reexecuted", 0)}
    if len(receipts) < plan.shards:
        commits = [info.modified_at for info in run.store.list(run.keys.results_prefix)]
        facts["last_shard_committed_at"] = iso_time(max(commits))
    return manifest, facts, has_labels


def _store_report(view: RunView, *, keep_json: bool) -> None:
    if keep_json:
        view.json()
    view.run.store.put(view.run.keys.report, view.json_chunks())


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
    clock = SteadyClock()
    run = plan_run(suite, store, plan_options, now=clock.now())
    receipts = execute_run(run, options)
    options = options or ExecuteOptions()
    decide = decide or DecideOptions(options.imports, options.objects)
    with finish_run(run, receipts, now=clock.now(), options=decide) as view:
        yield view


@dataclass(frozen=True)
class StoredCases:
    """The cases of a run as they stand in its plan (`model.suite.CaseSource`)."""

    run: StoredRun
    plan: Plan

    def __iter__(self) -> Iterator[Case]:
        for part in range(self.plan.parts):
            yield from self.run.cases(part, self.plan)

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
    clock = SteadyClock()
    again = plan_run(suite, run.store, plan, now=clock.now())
    receipts = execute_run(again, options)
    decide = DecideOptions(options.imports, options.objects, options.isolation)
    with finish_run(again, receipts, now=clock.now(), options=decide) as view:
        yield view
