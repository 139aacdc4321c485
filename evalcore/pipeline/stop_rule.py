"""Stop a run as soon as its sequential gates are decided; the rest of its items is skipped.

The committed shards are read in the order of the plan, by any process that executes the run. What
was decided follows from the rows alone: `finish` reads them again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from evalcore.gates.builtin import RequiredCases
from evalcore.gates.gate import gates_of
from evalcore.gates.registry import restore_gate
from evalcore.gates.sequential import CaseValue, SequentialGate, SequentialGates
from evalcore.gates.wording import number
from evalcore.mistakes.wording import counted
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.mode import HISTORY
from evalcore.model.quarantine import quarantine_of
from evalcore.model.run import Manifest
from evalcore.model.suite import SuiteDefinition
from evalcore.pipeline.stopping_order import late_gates, sequential_rules
from evalcore.planning.expand import WorkItem
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.analytics.compare import ComparisonPlan
    from evalcore.analytics.summarise import Aggregates


def stops_early(manifest: Manifest, definition: SuiteDefinition) -> bool:
    """Whether the run stops when it is decided; one that is graded again executes nothing."""
    executes = manifest.settings.get("reuse") in {None, HISTORY}
    return definition.policy.ends_when_decided and executes


class StopRule:
    """Whether the run is decided by the shards that are committed; safe in several threads."""

    def __init__(self, run: StoredRun, manifest: Manifest) -> None:
        self._run, self._manifest = run, manifest
        self._gates = _gates(run.definition, manifest)
        self._next_shard = 0
        self._awaits_labels = False
        self._failed = False
        self._awaited = _required_ids(run.definition, manifest)
        self._lock = threading.Lock()
        self.decided = False
        self.look()

    def leaves_out(self, _: WorkItem) -> bool:
        """Whether the gates do not need an item."""
        return self.decided

    def look(self) -> None:
        """Read the shards that follow those that were read; called after each commit."""
        with self._lock:
            if self.decided or self._awaits_labels:
                return
            run, plan = self._run, self._manifest.plan
            written = run.written_shards()
            shards = []
            while self._next_shard in written and self._next_shard < plan.shards:
                shards.append(self._next_shard)
                self._next_shard += 1
            if shards:
                with run.result_files(plan, shards) as parts, ExitStack() as stack:
                    tables = open_tables(stack, run, self._manifest, parts)
                    # An item that awaits labels is no failed one: nothing can be decided early.
                    self._awaits_labels = tables.awaits_labels()
                    if self._awaits_labels:
                        return
                    _take(self._gates, tables)
                    self._failed = self._failed or has_failed(run.definition, tables)
                    self._awaited -= tables.case_ids(self._awaited)
            failed = self._failed or self._gates.failed
            decided = failed or (self._gates.decided and not self._awaited)
            self.decided = decided or run.is_decided()
            if decided:
                facts = {"cases": self._gates.cases}
                run.store.put_if_absent(run.keys.decided, orjson.dumps(facts))


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
    groups = _groups(manifest)
    rules = sequential_rules(definition, groups)
    variants = [variant.id for variant in definition.variants]
    cases = max(1, manifest.plan.cases - len(quarantine_of(manifest.settings).case_ids))
    needs_all = bool(late_gates(definition, groups))
    return SequentialGates(rules, variants, definition.baseline, cases, needs_all=needs_all)


def _groups(manifest: Manifest) -> int:
    order: Mapping[str, int] = manifest.settings.get("order") or {}
    return int(order.get("groups", 1))


def open_tables(
    stack: ExitStack, run: StoredRun, manifest: Manifest, parts: Sequence[Path]
) -> Aggregates:
    """Return the aggregates of these parts of a run, without its quarantined cases."""
    from evalcore.analytics.summarise import Aggregates
    from evalcore.pipeline.opened_baseline import open_baseline
    from evalcore.pipeline.past_runs import open_past_runs

    comparison: ComparisonPlan | None
    comparison, _ = stack.enter_context(open_baseline(run, manifest))
    past = stack.enter_context(open_past_runs(run, manifest))
    policy = run.definition.policy
    return stack.enter_context(
        Aggregates(
            parts,
            manifest.plan,
            policy,
            comparison,
            past,
            left_out=quarantine_of(manifest.settings).case_ids,
        )
    )


def _take(gates: SequentialGates, tables: Aggregates) -> None:
    from evalcore.analytics.sequential import sequential_values

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
    if not definition.policy.stop_when_decided:
        return tuple(results)
    late = late_gates(definition, _groups(manifest))
    stopped = bool(tables.stopped_items())
    results = [
        late_result(result, late.get(index), stopped=stopped)
        for index, result in enumerate(results)
    ]
    if not stopped:
        return tuple(results)
    gates = _gates(definition, manifest)
    _take(gates, tables)
    return tuple(
        result if index not in gates.gates else _early(result, gates.gates[index], gates, manifest)
        for index, result in enumerate(results)
    )


def late_result(result: GateResult, reason: str | None, *, stopped: bool) -> GateResult:
    """Return the result of a gate that needs the whole run; inconclusive where that was stopped."""
    if reason is None:
        return result
    message = f"{result.message}; {reason}"
    if not stopped:
        return replace(result, message=message)
    return replace(result, outcome=GateOutcome.INCONCLUSIVE, message=message, remedy=None)


def _early(
    result: GateResult, gate: SequentialGate, gates: SequentialGates, manifest: Manifest
) -> GateResult:
    total = manifest.plan.cases
    details = {
        **result.details,
        "sequential": {
            "cases": gate.cases,
            "planned_cases": total,
            "alpha": gate.rule.alpha,
            "method": "betting E-values (Waudby-Smith and Ramdas 2024)",
        },
    }
    if gate.outcome is None:
        message = (
            f"not decided when the run stopped after {gates.cases} of {counted(total, 'case')}"
        )
        message += f"; {result.message}"
        return GateResult(result.name, GateOutcome.INCONCLUSIVE, message, details)
    message = f"{result.message}; decided after {gate.cases} of {counted(total, 'case')}"
    message += f" (anytime-valid, α {number(gate.rule.alpha)})"
    return GateResult(result.name, gate.outcome, message, details)
