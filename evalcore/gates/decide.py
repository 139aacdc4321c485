"""From gates to the decision of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evalcore.errors import ExitCode
from evalcore.gates.builtin import CustomGate, Errors, GateFunctions
from evalcore.gates.gate import Gate, unmeasured_items
from evalcore.gates.registry import restore_gate
from evalcore.model.run import Decision, GateOutcome, GateResult
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary
from evalcore.wording import counted

# The worst first.
_EXIT_CODES = {
    Decision.FAIL: ExitCode.GATE_FAILED,
    Decision.ERROR: ExitCode.ERRORS,
    Decision.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


def decide_gates(
    policy: Policy, summary: Summary, functions: GateFunctions | None = None
) -> tuple[GateResult, ...]:
    """Return the result of each gate of the policy, in their order.

    If every case is quarantined each gate is inconclusive. No gate passes over nothing measured.
    """
    if summary.nothing_gates:
        why = "every case is quarantined"
        return tuple(
            GateResult(restore_gate(spec).result_name, GateOutcome.INCONCLUSIVE, why)
            for spec in policy.gates
        )
    functions = functions or GateFunctions()
    results: list[GateResult] = []
    for index, gate in enumerate(map(restore_gate, policy.gates)):
        if not isinstance(gate, CustomGate):
            result = gate.decide(summary, policy)
        else:
            result = functions.stored.get(index) or gate.call(functions)
        results.append(_measured(gate, result, summary))
    return tuple(results)


def _measured(gate: Gate, result: GateResult, summary: Summary) -> GateResult:
    """Return the result; a pass over nothing measured is inconclusive.

    Whether errors are few is measured by the items in error. Labels that people have not given yet
    have a rule of their own (pipeline/gates.py).
    """
    if not result.passed or summary.awaiting is not None:
        return result
    why = None
    if not summary.counts.measured and not (gate.about_errors and summary.counts.error):
        why = f"nothing is measured: {unmeasured_items(summary.counts)}"
    elif not gate.about_errors:
        empty = [each.variant for each in summary.variants if each.is_planned and not each.cases]
        why = f"no case of variant '{empty[0]}' was evaluated" if empty else None
    if why is None:
        return result
    message = f"{why} ({result.message})"
    return replace(result, outcome=GateOutcome.INCONCLUSIVE, message=message)


def unevaluated_gates(policy: Policy, summary: Summary) -> tuple[GateResult, ...]:
    """Return the result of each gate of a run that evaluated nothing."""
    why = f"not evaluated: {unmeasured_items(summary.counts)}"
    if summary.asserted_errors:
        why += f"; {counted(summary.asserted_errors, 'assertion')} in error"
    if summary.unjudged:
        why += f"; {counted(summary.unjudged, 'assertion')} without an answer of the judge"
    gates = map(restore_gate, policy.gates)
    return tuple(
        _measured(gate, gate.decide(summary, policy), summary)
        if gate.about_errors
        else GateResult(gate.result_name, GateOutcome.INCONCLUSIVE, why)
        for gate in gates
    )


def without_assertions(policy: Policy, results: Sequence[GateResult]) -> tuple[GateResult, ...]:
    """Return the results of a run of which no case has an assertion: passes say nothing then."""
    return tuple(
        replace(
            result,
            outcome=GateOutcome.INCONCLUSIVE,
            message=f"no case has an assertion ({result.message})",
        )
        if result.passed and gate.needs_assertions
        else result
        for gate, result in zip(map(restore_gate, policy.gates), results, strict=True)
    )


def decide_run(
    gates: Sequence[GateResult],
    summary: Summary,
    gating: Summary | None = None,
    *,
    evaluated: bool = True,
) -> Decision:
    """Return the decision: fail, else error, else inconclusive, else pass.

    Counts that do not add up fail the run, also if all gates pass. `gating` is what the gates saw,
    if that is not the whole run; a run whose cases are all quarantined is inconclusive. A run that
    `evaluated` nothing is an error, and so is one that a provider ended (its key, its credit).
    Without a measured item no run passes, with any gates.
    """
    if not summary.adds_up:
        return Decision.FAIL
    if not evaluated or summary.refused:
        return Decision.ERROR
    if gating is not None and gating.nothing_gates:
        return Decision.INCONCLUSIVE
    outcomes = [gate.outcome for gate in gates if gate.name != Errors.gate]
    if GateOutcome.FAIL in outcomes:
        return Decision.FAIL
    if any(gate.name == Errors.gate and gate.outcome is GateOutcome.FAIL for gate in gates):
        return Decision.ERROR
    gated = gating or summary
    if GateOutcome.INCONCLUSIVE in outcomes or not (gated.counts.measured or gated.awaiting):
        return Decision.INCONCLUSIVE
    return Decision.PASS


def exit_code(decisions: Sequence[Decision]) -> ExitCode:
    """Return the worst exit code of several runs, in the order 1, 4, 3, 0."""
    codes = (code for decision, code in _EXIT_CODES.items() if decision in decisions)
    return next(codes, ExitCode.PASS)
