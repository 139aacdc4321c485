"""Compare two completed runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evalcore.errors import RunConflictError
from evalcore.gates.comparing import NoRegressions
from evalcore.gates.decide import decide_gates
from evalcore.model.comparison import Comparison
from evalcore.model.gate import GateResult
from evalcore.model.quarantine import quarantine_of
from evalcore.model.run import Manifest, State
from evalcore.model.summary import Summary
from evalcore.pipeline.integrity import check_parts, check_plan, check_shards
from evalcore.pipeline.opened_baseline import compare_with_run
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.analytics.summarise import Aggregates

_GATE = NoRegressions().spec


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """A run against an earlier one, and what `no_regressions` says of it."""

    baseline: Manifest
    candidate: Manifest
    summary: Summary
    comparison: Comparison
    gate: GateResult


def compare_runs(baseline: StoredRun, candidate: StoredRun) -> ComparedRuns:
    """Return the comparison of two completed runs; raise `RunConflictError` for others.

    Variants are matched by their ids; the only variant of one run with the only one of the other.
    The cases of both are reduced by the candidate's policy; those that are quarantined in the
    candidate are left out.
    """
    with open_compared(baseline, candidate) as (compared, _):
        return compared


@contextmanager
def open_compared(
    baseline: StoredRun, candidate: StoredRun, variants: tuple[str, str] | None = None
) -> Iterator[tuple[ComparedRuns, Aggregates]]:
    """Give the comparison of two completed runs with its tables, open as long as the context.

    `variants` are that of the baseline and that of the candidate; None for all that match. Both
    runs may be the same. Raises as `compare_runs` does.
    """
    from evalcore.analytics.summarise import Aggregates

    manifests = [_completed(run) for run in (baseline, candidate)]
    definition = candidate.definition
    policy = replace(definition.policy, gates=(_GATE,))
    with ExitStack() as stack:
        comparison_plan = stack.enter_context(compare_with_run(definition, baseline, manifests[0]))
        if variants is not None and comparison_plan.earlier is not None:
            earlier = replace(comparison_plan.earlier, variants=variants[:1])
            comparison_plan = replace(comparison_plan, variants=variants[1:], earlier=earlier)
        check_shards(candidate, manifests[1])
        parts = stack.enter_context(candidate.result_files(manifests[1].plan))
        check_parts(candidate, manifests[1], parts)
        left_out = quarantine_of(manifests[1].settings).case_ids
        tables = stack.enter_context(
            Aggregates(parts, manifests[1].plan, policy, comparison_plan, left_out=left_out)
        )
        summary = tables.summary()
        (gate,) = decide_gates(policy, summary)
        comparison = summary.comparison or Comparison()
        yield ComparedRuns(manifests[0], manifests[1], summary, comparison, gate), tables


def _completed(run: StoredRun) -> Manifest:
    manifest = run.manifest()
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(
            f"run {run.run_id} is {manifest.state}; `evalcore run --resume {run.run_id}` ends it"
        )
    check_plan(run, manifest)
    return manifest
