"""Stop a run as soon as its gates are decided; the rest of its items is skipped.

`StopRule` looks at cases in a random order, `RoundRule` at one round of all cases after the other
(`--iterations auto`, docs/reference/gates.md). Both read committed shards in the order of the
plan. What was decided follows from the rows alone: `finish` reads them again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from evalcore.analytics.gate_tables import executed_iterations
from evalcore.analytics.integrity import whole_parts
from evalcore.errors import UsageError
from evalcore.gates.builtin import RequiredCases
from evalcore.gates.gate import DIFFERENCES, CaseValue, SequentialRule, gates_of, number
from evalcore.gates.registry import GATES, restore_gate
from evalcore.gates.sequential import RoundGate, RoundGates, SequentialGate, SequentialGates
from evalcore.model.mode import HISTORY
from evalcore.model.run import GateOutcome, GateResult, Manifest, Plan
from evalcore.model.suite import Reducer, Suite, SuiteDefinition, quarantine_of
from evalcore.planning.expand import WorkItem
from evalcore.storage.runs import StoredRun
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.analytics.summary import Aggregates

# So many times at least the gates are looked at.
_LOOKS = 50


def sequential_rules(definition: SuiteDefinition) -> dict[int, SequentialRule]:
    """Return the rules of the gates that can be decided early, by their place in the policy."""
    gates = enumerate(map(restore_gate, definition.policy.gates))
    return {index: gate.sequential for index, gate in gates if gate.sequential is not None}


def require_early_gates(definition: SuiteDefinition, groups: int) -> None:
    """Raise `UsageError` if no gate of the suite can be decided before the whole run, or one cannot
    although it has a sequential rule: its tests take cases one by one.
    """
    policy = definition.policy
    auto = policy.auto_iterations
    option = f"suite '{definition.name}': {'--iterations auto' if auto else 'stop_when_decided'}"
    if auto and policy.reducer is not Reducer.MEAN:
        raise UsageError(
            f"{option} needs the reducer 'mean', not '{policy.reducer}': a score that depends on "
            "the number of iterations cannot be decided before the last; give a number of "
            "iterations"
        )
    kinds = {
        name
        for name, kind in GATES.items()
        if kind.is_sequential or (kind.fails_early and not auto)
    }
    if kinds.isdisjoint(gate.gate for gate in policy.gates):
        names = ", ".join(sorted(kinds))
        raise UsageError(f"{option} needs a gate that can be decided early: {names}")
    values = {rule.value for rule in sequential_rules(definition).values()}
    if policy.cluster is not None and not values.isdisjoint(DIFFERENCES):
        raise UsageError(
            f"{option} cannot decide a difference over cases that come in clusters (cluster: "
            f"{policy.cluster}); run all of them, or leave `cluster` out"
        )
    # A round has all cases: there a score over several groups is decided as well as any.
    if groups > 1 and not auto and CaseValue.SCORE in values:
        raise UsageError(
            f"{option} cannot decide a score that is a mean over {groups} groups; use pass_rate, "
            "or run all cases"
        )


def in_stopping_order(suite: Suite, seed: int | None = None) -> tuple[Suite, dict[str, Any]]:
    """Return the suite with its cases in a random order, and how that was made, for the manifest.

    Without a `seed` a new one is drawn.
    """
    from evalcore.history.fingerprints import digest_cases
    from evalcore.planning.spool import in_random_order

    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    cases_sha256, _ = digest_cases(suite.cases.parts())
    order = {"seed": seed, "cases_sha256": cases_sha256}
    return replace(suite, cases=in_random_order(suite.cases, seed)), order


def stopping_plan(plan: Plan) -> Plan:
    """Return the plan in shards of whole cases, so small that the run can stop between them."""
    cases = max(1, -(-plan.cases // _LOOKS))
    most = max(1, 5_000 // plan.items_per_case)
    size = max(min(cases, most), -(-plan.cases // 2_000)) * plan.items_per_case
    shards = -(-plan.items // size)
    return replace(plan, shard_size=size, shards=shards, pilot=0, settled=True)


def stop_rule_of(run: StoredRun, manifest: Manifest) -> StopRule | None:
    """Return what stops the run when it is decided; None if it executes all, or nothing at all."""
    policy = run.definition.policy
    if not policy.ends_when_decided or manifest.settings.get("reuse") not in {None, HISTORY}:
        return None
    return RoundRule(run, manifest) if policy.auto_iterations else StopRule(run, manifest)


class StopRule:
    """Whether the run is decided by the shards that are committed, case after case."""

    def __init__(self, run: StoredRun, manifest: Manifest) -> None:
        self._run, self._manifest = run, manifest
        self._committed = 0
        self.decided = False
        self._begin()
        self.look()

    def look(self) -> None:
        """Read the shards that follow those that were read; called after each commit."""
        if self.decided:
            return
        run, first = self._run, self._committed
        self._committed = _committed(run, self._manifest.plan, first)
        facts = self._read(first)
        self.decided = facts is not None or run.is_decided()
        if facts is not None:
            run.store.put_if_absent(run.keys.decided, orjson.dumps(facts))

    def leaves_out(self, _: WorkItem) -> bool:
        """Whether the gates do not need an item."""
        return self.decided

    def _begin(self) -> None:
        self._gates = _gates(self._run.definition, self._manifest)
        self._awaits_labels = self._failed = False
        self._awaited = _required_ids(self._run.definition, self._manifest)

    def _read(self, first: int) -> Mapping[str, int] | None:
        """Read the shards from `first` on that are committed; return facts if they decide."""
        run = self._run
        if (shards := range(first, self._committed)) and not self._awaits_labels:
            with ExitStack() as stack:
                parts = stack.enter_context(whole_parts(run, self._manifest, only=shards))
                tables = open_tables(stack, run, self._manifest, [*parts.values()])
                # An item that awaits labels is no failed one: nothing can be decided early.
                self._awaits_labels = tables.awaits_labels()
                if not self._awaits_labels:
                    _take(self._gates, tables)
                    self._failed = self._failed or has_failed(run.definition, tables)
                    self._awaited -= tables.case_ids(self._awaited)
        decided = self._failed or self._gates.failed or (self._gates.decided and not self._awaited)
        return {"cases": self._gates.cases} if decided and not self._awaits_labels else None


def _committed(run: StoredRun, plan: Plan, known: int) -> int:
    """Return how many shards from the first on are committed; `known` of them surely are."""
    written = run.written_shards()
    return next(shard for shard in count(known) if shard not in written or shard >= plan.shards)


def has_failed(definition: SuiteDefinition, tables: Aggregates, *, repeats: bool = False) -> bool:
    """Whether a gate has failed by the cases in the tables, and others cannot change it."""
    gates = [gate for gate in map(restore_gate, definition.policy.gates) if gate.fails_early]
    if not gates:
        return False
    summary = tables.summary()
    if summary.awaiting is not None:  # what people say is not known yet
        return False
    return any(gate.has_failed(summary, definition.policy, repeats=repeats) for gate in gates)


def _required_ids(definition: SuiteDefinition, manifest: Manifest) -> frozenset[str]:
    """Return the required cases, without which the run cannot pass."""
    gates = gates_of(definition.policy, RequiredCases)
    ids = frozenset(case for gate in gates for case in gate.case_ids)
    return ids - set(quarantine_of(manifest.settings).case_ids)


def _gates(definition: SuiteDefinition, manifest: Manifest) -> SequentialGates:
    variants = [variant.id for variant in definition.variants]
    cases = max(1, manifest.plan.cases - len(quarantine_of(manifest.settings).case_ids))
    return SequentialGates(sequential_rules(definition), variants, definition.baseline, cases)


def open_tables(
    stack: ExitStack, run: StoredRun, manifest: Manifest, parts: Sequence[Path]
) -> Aggregates:
    """Return the aggregates of these parts of a run, without its quarantined cases."""
    from evalcore.pipeline.compare import ReportSources, open_baseline
    from evalcore.pipeline.reuse import open_past_runs

    comparison, _ = stack.enter_context(open_baseline(run, manifest))
    past = stack.enter_context(open_past_runs(run, manifest))
    sources = ReportSources(run, manifest, parts, comparison, past, None)
    left_out = quarantine_of(manifest.settings).case_ids
    return stack.enter_context(sources.aggregates(left_out=left_out))


def _take(gates: SequentialGates, tables: Aggregates) -> None:
    from evalcore.analytics.gate_tables import sequential_values

    rules = [gate.rule for gate in gates.gates.values()]
    compared: list[str] = []
    if any(rule.value is CaseValue.DIFFERENCE for rule in rules):
        compared = tables.compared_variants()
        if not compared:
            rules = [rule for rule in rules if rule.value is not CaseValue.DIFFERENCE]
    for values in sequential_values(tables.connection, rules, compared):
        gates.add(values)


def early_results(
    definition: SuiteDefinition,
    manifest: Manifest,
    tables: Aggregates,
    results: Sequence[GateResult],
) -> tuple[GateResult, ...]:
    """Return the gates' results where the run was stopped: what the sequential tests say.

    A run that went to its end has the results that it has without stopping.
    """
    if not tables.stopped_items():
        return tuple(results)
    gates = _gates(definition, manifest)
    _take(gates, tables)
    return tuple(
        result
        if index not in gates.gates
        else _early_result(result, gates.gates[index], gates.cases, manifest.plan.cases)
        for index, result in enumerate(results)
    )


def _early_result(result: GateResult, gate: SequentialGate, cases: int, planned: int) -> GateResult:
    facts = {
        "cases": gate.cases,
        "planned_cases": planned,
        "alpha": gate.rule.alpha,
        "method": "betting E-values (Waudby-Smith and Ramdas 2024)",
    }
    details = {**result.details, "sequential": facts}
    of_planned = f"of {counted(planned, 'case')}"
    if gate.outcome is None:
        message = f"not decided when the run stopped after {cases} {of_planned}; {result.message}"
        return GateResult(result.name, GateOutcome.INCONCLUSIVE, message, details)
    message = f"{result.message}; decided after {gate.cases} {of_planned}"
    message += f" (anytime-valid, α {number(gate.rule.alpha)})"
    return GateResult(result.name, gate.outcome, message, details)


_BERNSTEIN: Final = "empirical Bernstein E-values (Waudby-Smith and Ramdas 2024)"
_BETTING: Final = "betting E-values (Waudby-Smith and Ramdas 2024), shared by the rounds"
_METHODS: Final[Mapping[CaseValue, str]] = {
    CaseValue.SCORE: _BERNSTEIN,
    CaseValue.PASSED: _BERNSTEIN,
    CaseValue.RELIABILITY: "exact bounds",
    CaseValue.DIFFERENCE: _BETTING,
    CaseValue.PAST_DIFFERENCE: _BETTING,
}


class RoundRule(StopRule):
    """Which items the gates need, by the rounds that are committed."""

    def leaves_out(self, item: WorkItem) -> bool:
        """Whether the gates do not need an item; a quarantined case is run once."""
        return self.decided or (item.iteration > 0 and item.case.id in self._quarantined)

    def _begin(self) -> None:
        self._rounds = _round_gates(self._run.definition, self._manifest)
        self._quarantined = frozenset(quarantine_of(self._manifest.settings).case_ids)

    def _read(self, first: int) -> Mapping[str, int] | None:  # noqa: ARG002 - a round is read whole
        """Read the rounds that are complete; return facts if they decide."""
        run, plan = self._run, self._manifest.plan
        complete = self._committed // plan.round_shards
        if complete > self._rounds.rounds:
            shards = range(complete * plan.round_shards)
            with whole_parts(run, self._manifest, only=shards) as parts:
                _take_rounds(self._rounds, run, self._manifest, [*parts.values()])
        return {"rounds": self._rounds.rounds} if self._rounds.ended else None


def decide_rounds(
    run: StoredRun,
    manifest: Manifest,
    parts: Sequence[Path],
    tables: Aggregates,
    results: Sequence[GateResult],
) -> tuple[tuple[GateResult, ...], dict[str, Any]]:
    """Return the gates' results after the rounds that were needed, and what the report says of the
    iterations: how many cases × variants were run how often, and why no more were.

    `parts` are those of all shards, `tables` the aggregates of all of them.
    """
    gates = _round_gates(run.definition, manifest)
    _take_rounds(gates, run, manifest, parts)
    most = manifest.plan.iterations
    decided = tuple(
        result
        if (gate := gates.gates.get(index)) is None
        else _round_result(result, gate, gates, most)
        for index, result in enumerate(results)
    )
    executed = executed_iterations(tables.connection)
    return decided, {
        "mode": "auto",
        "max": most,
        "rounds": gates.rounds,
        "stopped": _why(gates, most),
        "cases": [{"iterations": times, "cases": count} for times, count in executed],
    }


def _round_gates(definition: SuiteDefinition, manifest: Manifest) -> RoundGates:
    variants = [variant.id for variant in definition.variants]
    rules = sequential_rules(definition)
    return RoundGates(rules, variants, definition.baseline, manifest.plan.iterations)


def _take_rounds(
    gates: RoundGates, run: StoredRun, manifest: Manifest, parts: Sequence[Path]
) -> None:
    """Give the gates the rounds in these parts that they have not seen, one after the other."""
    plan, rules = manifest.plan, sequential_rules(run.definition)
    for iteration in range(gates.rounds, len(parts) // plan.round_shards):
        if gates.ended:
            return
        with ExitStack() as stack:
            own = parts[: (iteration + 1) * plan.round_shards]
            tables = open_tables(stack, run, manifest, own)
            gates.add(*tables.read_round(rules, plan.iterations, iteration))
            repeats = iteration + 1 < plan.iterations
            gates.beside_failed = has_failed(run.definition, tables, repeats=repeats)


def _why(gates: RoundGates, most: int) -> str:
    if gates.decided:
        return "decided" if gates.rounds < most else "decided by the last iteration"
    return "no iteration differs" if gates.futile else "largest number of iterations"


def _round_result(result: GateResult, gate: RoundGate, gates: RoundGates, most: int) -> GateResult:
    value = gate.rule.value
    facts = {
        "iterations": gate.rounds,
        "planned_iterations": most,
        "alpha": gate.rule.alpha,
        "method": _METHODS[value],
    }
    details = {**result.details, "sequential": facts}
    after = f"after {gate.rounds} of {most} iterations"
    if gate.outcome is None:
        if not gates.decided:
            return GateResult(result.name, result.outcome, result.message, details, result.remedy)
        message = f"not decided when the run stopped {after}; {result.message}"
        return GateResult(result.name, GateOutcome.INCONCLUSIVE, message, details)
    message = result.message
    if value in {CaseValue.SCORE, CaseValue.PASSED}:
        facts["mean"] = gate.mean
        subject = "score" if value is CaseValue.SCORE else "share of iterations that passed"
        message = f"{subject} {number(gate.mean)}, threshold {number(gate.rule.boundary)}"
    level = (
        "" if value is CaseValue.RELIABILITY else f" (anytime-valid, α {number(gate.rule.alpha)})"
    )
    return GateResult(result.name, gate.outcome, f"{message}; decided {after}{level}", details)
