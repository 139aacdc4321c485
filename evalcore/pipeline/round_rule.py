"""Run all cases again until the gates are decided: `--iterations auto` (docs/reference/gates.md).

The plan holds the largest number of iterations, one round of all cases after the other. What is
decided after a round follows from the rows of the rounds up to it: `finish` reads them again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evalcore.analytics.rounds import executed_iterations, read_round
from evalcore.gates.rounds import RoundGate, RoundGates
from evalcore.gates.sequential import CaseValue
from evalcore.gates.wording import number
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.quarantine import quarantine_of
from evalcore.model.run import Manifest
from evalcore.model.suite import SuiteDefinition
from evalcore.pipeline.stop_rule import has_failed, late_result, open_tables
from evalcore.pipeline.stopping_order import late_gates, round_rules
from evalcore.planning.expand import WorkItem
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.analytics.summarise import Aggregates

_METHODS: Mapping[CaseValue, str] = {
    CaseValue.SCORE: "empirical Bernstein E-values (Waudby-Smith and Ramdas 2024)",
    CaseValue.PASSED: "empirical Bernstein E-values (Waudby-Smith and Ramdas 2024)",
    CaseValue.RELIABILITY: "exact bounds",
    CaseValue.DIFFERENCE: "betting E-values (Waudby-Smith and Ramdas 2024), shared by the rounds",
    CaseValue.PAST_DIFFERENCE: (
        "betting E-values (Waudby-Smith and Ramdas 2024), shared by the rounds"
    ),
}


class RoundRule:
    """Which items the gates need, by the rounds that are committed; safe in several threads."""

    def __init__(self, run: StoredRun, manifest: Manifest) -> None:
        self._run, self._manifest = run, manifest
        self._gates = _gates(run.definition, manifest)
        self._quarantined = frozenset(quarantine_of(manifest.settings).case_ids)
        self._lock = threading.Lock()
        self._next_shard = 0
        self.decided = False
        self.look()

    def look(self) -> None:
        """Read the rounds that are complete; called after each commit."""
        with self._lock:
            if self.decided:
                return
            run, plan = self._run, self._manifest.plan
            written = run.written_shards()
            while self._next_shard in written and self._next_shard < plan.shards:
                self._next_shard += 1
            complete = self._next_shard // plan.round_shards
            if complete > self._gates.rounds:
                shards = range(complete * plan.round_shards)
                with run.result_files(plan, shards) as parts:
                    _take(self._gates, run, self._manifest, parts)
            self.decided = self._gates.ended or run.is_decided()
            if self._gates.ended:
                facts = {"rounds": self._gates.rounds}
                run.store.put_if_absent(run.keys.decided, orjson.dumps(facts))

    def leaves_out(self, item: WorkItem) -> bool:
        """Whether the gates do not need an item; a quarantined case is run once."""
        return self.decided or (item.iteration > 0 and item.case.id in self._quarantined)


@dataclass(frozen=True, slots=True)
class RoundsReport:
    """What the report says of the iterations of a run that adds them by itself.

    `cases` has `{iterations, cases}`: how many cases × variants were run how often.
    """

    most: int
    rounds: int
    stopped: str
    cases: tuple[Mapping[str, int], ...]

    def settings(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "mode": "auto",
            "max": self.most,
            "rounds": self.rounds,
            "stopped": self.stopped,
            "cases": list(self.cases),
        }


def decide_rounds(
    run: StoredRun,
    manifest: Manifest,
    parts: Sequence[Path],
    tables: Aggregates,
    results: Sequence[GateResult],
) -> tuple[tuple[GateResult, ...], RoundsReport]:
    """Return the gates' results after the rounds that were needed, and what the report says.

    `parts` are those of all shards, `tables` the aggregates of all of them.
    """
    gates = _gates(run.definition, manifest)
    _take(gates, run, manifest, parts)
    most = manifest.plan.iterations
    late = late_gates(run.definition, groups=1)
    decided = tuple(
        late_result(result, late.get(index), stopped=gates.rounds < most)
        if (gate := gates.gates.get(index)) is None
        else _result(result, gate, gates, most)
        for index, result in enumerate(results)
    )
    cases = tuple(
        {"iterations": iterations, "cases": count}
        for iterations, count in executed_iterations(tables.connection)
    )
    return decided, RoundsReport(most, gates.rounds, _why(gates, most), cases)


def _gates(definition: SuiteDefinition, manifest: Manifest) -> RoundGates:
    variants = [variant.id for variant in definition.variants]
    most = manifest.plan.iterations
    needs_all = bool(late_gates(definition, groups=1))
    rules = round_rules(definition)
    return RoundGates(rules, variants, definition.baseline, most, needs_all=needs_all)


def _take(gates: RoundGates, run: StoredRun, manifest: Manifest, parts: Sequence[Path]) -> None:
    """Give the gates the rounds in these parts that they have not seen, one after the other."""
    plan = manifest.plan
    for iteration in range(gates.rounds, len(parts) // plan.round_shards):
        if gates.ended:
            return
        with ExitStack() as stack:
            own = parts[: (iteration + 1) * plan.round_shards]
            tables = open_tables(stack, run, manifest, own)
            gates.add(*read_round(tables, round_rules(run.definition), plan.iterations, iteration))
            repeats = iteration + 1 < plan.iterations
            gates.failed = has_failed(run.definition, tables, repeats=repeats)


def _why(gates: RoundGates, most: int) -> str:
    if gates.decided:
        return "decided" if gates.rounds < most else "decided by the last iteration"
    return "no iteration differs" if gates.futile else "largest number of iterations"


def _result(result: GateResult, gate: RoundGate, gates: RoundGates, most: int) -> GateResult:
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
