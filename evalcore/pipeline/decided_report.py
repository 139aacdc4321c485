"""DECIDE: what the gates say of a run's rows, and the report with their decision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.gates.decide import decide_run
from evalcore.model.gate import GateResult
from evalcore.model.run import Manifest
from evalcore.model.summary import Summary
from evalcore.pipeline.run_gates import (
    DecideOptions,
    gate_results,
    has_evaluated_nothing,
    without_secrets,
)
from evalcore.report.document import Report
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.analytics.compare import ComparisonPlan
    from evalcore.analytics.past import PastTables
    from evalcore.analytics.summarise import Aggregates


@dataclass(frozen=True, slots=True, eq=False)
class ReportSources:
    """What a run's report is computed from; its files last as long as they are opened.

    `parts` are the files of all shards, `comparison` is the baseline; without one `no_baseline` is
    the reason, if there should be one.
    """

    run: StoredRun
    manifest: Manifest
    parts: Sequence[Path]
    comparison: ComparisonPlan | None
    past: PastTables | None
    no_baseline: str | None

    def aggregates(
        self, *, left_out: Sequence[str] = (), best_variants: Sequence[int] = ()
    ) -> Aggregates:
        """Return the tables of the rows, to be closed by the caller."""
        from evalcore.analytics.summarise import Aggregates

        return Aggregates(
            self.parts,
            self.manifest.plan,
            self.run.definition.policy,
            self.comparison,
            self.past,
            left_out=left_out,
            best_variants=best_variants,
        )

    def summary(self, tables: Aggregates) -> Summary:
        """Return the summary of the tables."""
        return replace(
            tables.summary(), no_baseline=self.no_baseline, is_first_run=self.no_baseline is None
        )


def decided_report(
    sources: ReportSources,
    tables: Aggregates,
    undecided: Report,
    options: DecideOptions | None,
) -> Report:
    """Return the report with the gates' results; `tables` and `undecided` have all cases."""
    run, manifest = sources.run, sources.manifest
    with ExitStack() as stack:
        gating, gated = undecided, tables
        if undecided.quarantine.active:
            # Gates decide as if the quarantined cases were not there; the report has them all.
            left_out = undecided.quarantine.case_ids
            gated = stack.enter_context(sources.aggregates(left_out=left_out))
            gating = replace(undecided, summary=sources.summary(gated))
        results = gate_results(run, manifest, gating, gated, options)
    report = undecided
    if run.definition.policy.auto_iterations and not has_evaluated_nothing(
        run.definition, gating.summary
    ):
        from evalcore.pipeline.round_rule import decide_rounds

        results, rounds = decide_rounds(run, manifest, sources.parts, tables, results)
        report = replace(report, iterations=rounds.settings())
    results = _with_awaited_labels(sources, gating, results, options)
    gates = tuple(map(without_secrets, results))
    evaluated = not has_evaluated_nothing(run.definition, gating.summary)
    decision = decide_run(gates, undecided.summary, gating.summary, evaluated=evaluated)
    return replace(report, gates=gates, decision=decision)


def _with_awaited_labels(
    sources: ReportSources,
    gating: Report,
    results: Sequence[GateResult],
    options: DecideOptions | None,
) -> Sequence[GateResult]:
    """Return what the gates say while people have not answered everything yet."""
    run, manifest = sources.run, sources.manifest
    if (awaited := gating.summary.awaiting) is None:
        return results
    from evalcore.pipeline.awaited_labels import decide_awaiting

    def gates_of(variants: Sequence[int]) -> Sequence[GateResult]:
        left_out = gating.summary.quarantined
        with sources.aggregates(left_out=left_out, best_variants=variants) as tables:
            answered = replace(gating, summary=sources.summary(tables))
            return gate_results(run, manifest, answered, tables, options)

    return decide_awaiting(run.definition, manifest, awaited, results, gates_of)
