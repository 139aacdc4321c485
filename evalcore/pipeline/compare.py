"""What a run is compared with: settled when it is planned, opened when it is decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evalcore.analytics.integrity import check_plan, sealed, whole_parts
from evalcore.errors import DamagedRunError, ObjectNotFoundError, RunConflictError, UsageError
from evalcore.gates.comparing import NoRegressions
from evalcore.gates.decide import decide_gates
from evalcore.gates.registry import restore_gate
from evalcore.model.run import GateResult, Manifest, State
from evalcore.model.suite import SuiteDefinition, quarantine_of
from evalcore.model.summary import CLOCK_NOISE_MS, Comparison, Summary, Tolerances
from evalcore.storage.baselines import DEFAULT_NAME, get_baseline, list_baselines
from evalcore.storage.run_names import LAST, LATEST, choose_run, is_run_name
from evalcore.storage.runs import StoredRun, open_run, partial_reasons
from evalcore.storage.store import ObjectStore
from evalcore.targets.registry import is_instant

if TYPE_CHECKING:
    from evalcore.analytics.compare import ComparisonPlan
    from evalcore.analytics.gate_tables import PastTables
    from evalcore.analytics.summary import Aggregates


def settle_baseline(store: ObjectStore, definition: SuiteDefinition) -> dict[str, Any] | None:
    """Return the earlier run that a run of the suite is compared with: `{name, suite, run}`.

    None if its baseline is a variant, or if none is asked for. The name that the caller gave is
    a named baseline of the suite, else a run's id; raises `UsageError` if it is neither, or if the
    run is a partial one. `latest` means the newest whole run, as `last` does.
    """
    if definition.baseline is not None or definition.dropped_baseline is not None:
        return None
    name = definition.baseline_run
    if name is None:
        if not any(restore_gate(gate).compares for gate in definition.policy.gates):
            return None
        name = DEFAULT_NAME
    pointer = get_baseline(store, definition.name, name)
    if pointer is not None:
        return {"name": name, "suite": pointer.suite, "run": pointer.run}
    if definition.baseline_run is None:
        return None
    if not is_run_name(name):
        raise UsageError(_unknown(store, definition, name))
    run = choose_run(store, _whole(name), suite=definition.name)
    earlier = run.manifest()
    if earlier.state is not State.COMPLETED:
        raise UsageError(
            f"baseline: run {name} is {earlier.state}; only a completed run can be one"
        )
    if earlier.suite != definition.name:
        raise UsageError(
            f"baseline: run {name} is of suite '{earlier.suite}', not of '{definition.name}'; "
            "`evalcore compare` compares runs of any two suites"
        )
    if reasons := partial_reasons(earlier):
        raise UsageError(
            f"baseline: run {earlier.id} is of a part of its suite ({'; '.join(reasons)}) and "
            "cannot be a baseline; `last` names the newest whole run, and `evalcore baseline set "
            f"{definition.name} {earlier.id} --force` takes this one as it is"
        )
    return {"name": None, "suite": earlier.suite, "run": earlier.id}


def _whole(name: str) -> str:
    suite, slash, short = name.rpartition("/")
    return f"{suite}{slash}{LAST}" if short == LATEST else name


def _unknown(store: ObjectStore, definition: SuiteDefinition, name: str) -> str:
    variants = ", ".join(variant.id for variant in definition.variants)
    names = [pointer.name for pointer in list_baselines(store, definition.name)]
    named = f"no baseline of that name (known: {', '.join(names) or 'none'})"
    return (
        f"baseline: suite '{definition.name}' has no variant '{name}' (variants: {variants}) and "
        f"{named}, and it is no run's id"
    )


_NOISE_SINCE: Final = 4  # of `model.suite.FILE_RULES`


@contextmanager
def open_baseline(
    run: StoredRun, manifest: Manifest
) -> Iterator[tuple[ComparisonPlan | None, str | None]]:
    """Give what the run is compared with, or why there is nothing; files last as the context."""
    definition = run.definition
    recorded = manifest.settings.get("baseline")
    if definition.dropped_baseline is not None:
        dropped = definition.dropped_baseline
        chosen = f"add it to the variants that run (--variant {dropped})"
        yield None, f"the baseline variant '{dropped}' was left out: {chosen}"
    elif definition.baseline is not None:
        yield _comparison_plan(definition, baseline=definition.baseline), None
    elif recorded is None:
        yield None, None
    else:
        earlier = open_run(run.store, recorded["suite"], recorded["run"])
        with ExitStack() as stack:
            comparison_plan: ComparisonPlan | None = None
            try:
                manifest = earlier.manifest()
                comparison_plan = stack.enter_context(
                    compare_with_run(definition, earlier, manifest)
                )
            except ObjectNotFoundError:
                reason = f"the baseline run {recorded['run']} is not in the store any more"
            except DamagedRunError as error:
                reason = f"the baseline {error}"
            yield comparison_plan, None if comparison_plan is not None else reason


@contextmanager
def compare_with_run(
    definition: SuiteDefinition, earlier: StoredRun, manifest: Manifest
) -> Iterator[ComparisonPlan]:
    """Give an earlier run as the baseline; its files last as long as the context.

    Raises `DamagedRunError` unless it has a row for each of its items.
    """
    from evalcore.analytics.compare import EarlierRun

    with whole_parts(earlier, manifest) as parts:
        variants = tuple(variant.id for variant in earlier.definition.variants)
        files = [*parts.values()]
        yield _comparison_plan(
            definition, earlier=EarlierRun(manifest.id, files, manifest.plan, variants)
        )


def _comparison_plan(definition: SuiteDefinition, **baseline: Any) -> ComparisonPlan:
    from evalcore.analytics.compare import ComparisonPlan

    tolerances = Tolerances(noise_ms=CLOCK_NOISE_MS)
    if definition.file_rules < _NOISE_SINCE:
        instant = all(map(is_instant, definition.targets.values()))
        tolerances = Tolerances(floor_ms=0.0 if instant else CLOCK_NOISE_MS)
    return ComparisonPlan(
        tuple(variant.id for variant in definition.variants),
        tolerances=tolerances,
        cluster=definition.policy.cluster,
        only_planned=definition.filtered,
        **baseline,
    )


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
        from evalcore.analytics.summary import Aggregates

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
    from evalcore.analytics.summary import Aggregates

    manifests = [_completed(run) for run in (baseline, candidate)]
    definition = candidate.definition
    policy = replace(definition.policy, gates=(_GATE,))
    with ExitStack() as stack:
        comparison_plan = stack.enter_context(compare_with_run(definition, baseline, manifests[0]))
        if variants is not None and comparison_plan.earlier is not None:
            earlier = replace(comparison_plan.earlier, variants=variants[:1])
            comparison_plan = replace(comparison_plan, variants=variants[1:], earlier=earlier)
        parts = stack.enter_context(whole_parts(candidate, manifests[1]))
        left_out = quarantine_of(manifests[1].settings).case_ids
        files, plan = [*parts.values()], manifests[1].plan
        tables = stack.enter_context(
            Aggregates(files, plan, policy, comparison_plan, left_out=left_out)
        )
        summary = tables.summary()
        (gate,) = decide_gates(policy, summary)
        comparison = summary.comparison or Comparison()
        yield ComparedRuns(manifests[0], manifests[1], summary, comparison, gate), tables


def _completed(run: StoredRun) -> Manifest:
    run = sealed(run)
    manifest = run.manifest()
    if manifest.state is not State.COMPLETED:
        raise RunConflictError(
            f"run {run.run_id} is {manifest.state}; `evalcore run --resume {run.run_id}` ends it"
        )
    check_plan(run, manifest)
    return manifest
