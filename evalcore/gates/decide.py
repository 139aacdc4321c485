"""From gates to the decision of a run."""

from __future__ import annotations

from collections.abc import Sequence

from evalcore.errors import ExitCode
from evalcore.gates.own_functions import CustomGates, custom
from evalcore.gates.registry import GATES, with_defaults
from evalcore.model.gate import Decision, GateOutcome, GateResult
from evalcore.model.suite import Policy
from evalcore.model.summary import Summary

ERRORS_GATE = "errors"

_EXIT_CODES = {
    Decision.PASS: ExitCode.PASS,
    Decision.FAIL: ExitCode.GATE_FAILED,
    Decision.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Decision.ERROR: ExitCode.ERRORS,
}
_WORST_FIRST = (
    ExitCode.USAGE,
    ExitCode.GATE_FAILED,
    ExitCode.ERRORS,
    ExitCode.INCONCLUSIVE,
    ExitCode.PASS,
)


def decide_gates(
    policy: Policy, summary: Summary, custom_gates: CustomGates | None = None
) -> tuple[GateResult, ...]:
    """Return the result of each gate of the policy, in their order."""
    called = custom_gates or CustomGates()
    results: list[GateResult] = []
    for place, gate in enumerate(policy.gates):
        params = with_defaults(gate)
        decide = GATES[gate.gate].decide
        if decide is not None:
            results.append(decide(params, summary, policy))
        elif place in called.known:
            results.append(called.known[place])
        else:
            results.append(custom(params, called))
    return tuple(results)


def decide_run(gates: Sequence[GateResult], summary: Summary) -> Decision:
    """Return the decision: fail, else error, else inconclusive, else pass (spec/engine.md).

    Counts that do not add up fail the run whatever the gates say.
    """
    if not summary.adds_up:
        return Decision.FAIL
    others = [gate.outcome for gate in gates if gate.name != ERRORS_GATE]
    if GateOutcome.FAIL in others:
        return Decision.FAIL
    if any(gate.name == ERRORS_GATE and not gate.passed for gate in gates):
        return Decision.ERROR
    return Decision.INCONCLUSIVE if GateOutcome.INCONCLUSIVE in others else Decision.PASS


def exit_code(decisions: Sequence[Decision]) -> ExitCode:
    """Return the worst exit code of several runs, in the order 1, 4, 3, 0."""
    codes = {_EXIT_CODES[decision] for decision in decisions}
    return next((code for code in _WORST_FIRST if code in codes), ExitCode.PASS)
