"""AGGREGATE, DECIDE, REPORT: what a run whose shards all have results came to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalcore.errors import RunConflictError
from evalcore.execution.shard import ShardReceipt
from evalcore.gates.decide import decide_gates, decide_run
from evalcore.model.failure import Failure
from evalcore.model.run import Manifest, State
from evalcore.pipeline.execute import execution_facts
from evalcore.pipeline.plan import iso_time
from evalcore.planning.shards import pending_shards
from evalcore.report.document import Report, RunFacts, report_chunks
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.analytics.summarise import Aggregates


class RunView:
    """A run's report together with the tables behind it, open as long as its context."""

    def __init__(self, run: StoredRun, report: Report, tables: Aggregates) -> None:
        self.run = run
        self.report = report
        self._tables = tables

    def json(self, *, newline: str = "\n") -> bytes:
        """Return the whole report as JSON in UTF-8; with `newline=""` on one line."""
        cases = self._tables.report_cases()
        return b"".join(report_chunks(self.report, cases, newline=newline))

    def failures(self, most: int) -> tuple[Failure, ...]:
        """Return the first work items that did not pass: errors, then failed, then blocked."""
        return self._tables.failures(most)


@contextmanager
def finish_run(
    run: StoredRun, receipts: Sequence[ShardReceipt], *, now: datetime
) -> Iterator[RunView]:
    """Aggregate, decide and report a run whose shards all have results; give its view.

    The report is written before the manifest's final state, which speaks of it. Raises
    `RunConflictError` if shards are missing.
    """
    manifest = run.manifest()
    missing = pending_shards(manifest.plan, run.written_shards())
    if missing:
        raise RunConflictError(
            f"run {run.run_id} is not complete: {len(missing)} of {manifest.plan.shards} shards "
            f"have no result; `evalcore run --resume {run.run_id}` executes them"
        )
    facts = execution_facts(manifest, receipts)
    ended = replace(
        manifest,
        started_at=manifest.started_at or manifest.created_at,
        ended_at=iso_time(now),
        execution=facts,
    )
    with _view(run, ended) as view:
        run.store.put(run.keys.report, view.json())
        summary = view.report.summary
        facts["p50_latency_ms"] = summary.p50_latency_ms
        final: dict[str, Any] = {
            "state": State.COMPLETED,
            "started_at": ended.started_at,
            "ended_at": ended.ended_at,
            "counts": asdict(summary.counts),
            "decision": view.report.decision,
            "execution": facts,
        }
        run.update(lambda current: replace(current, **final))
        yield view


@contextmanager
def view_run(run: StoredRun) -> Iterator[RunView]:
    """Give the view of a completed run; everything comes from the store."""
    manifest = run.manifest()
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(
            f"run {run.run_id} is {manifest.state}; `evalcore run --resume {run.run_id}` ends it"
        )
    with _view(run, manifest) as view:
        yield view


@contextmanager
def _view(run: StoredRun, manifest: Manifest) -> Iterator[RunView]:
    """Aggregate and decide; `manifest` has its times."""
    from evalcore.analytics.summarise import Aggregates

    definition = run.definition
    with run.result_files(manifest.plan) as parts:
        tables = Aggregates(parts, manifest.plan, definition.policy)
        with tables:
            summary = tables.summary()
            gates = decide_gates(definition.policy, summary)
            report = Report(
                run=_run_facts(manifest),
                suite=definition.name,
                format=definition.format,
                decision=decide_run(gates, summary),
                threshold=definition.policy.threshold,
                summary=summary,
                gates=gates,
                cases_complete=tables.complete,
            )
            yield RunView(run, report, tables)


def _run_facts(manifest: Manifest) -> RunFacts:
    started = manifest.started_at or manifest.created_at
    ended = manifest.ended_at or started
    duration = datetime.fromisoformat(ended) - datetime.fromisoformat(started)
    return RunFacts(
        id=manifest.id,
        mode=manifest.mode,
        started_at=started,
        ended_at=ended,
        duration_s=round(duration.total_seconds(), 3),
        reexecuted=int(manifest.execution.get("reexecuted", 0)),
        engine=dict(manifest.engine),
    )
