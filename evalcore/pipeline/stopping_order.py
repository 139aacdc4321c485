"""How a run that stops early is planned: in a random order, in small shards of whole cases."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from evalcore.errors import UsageError
from evalcore.gates.registry import GATES, restore_gate
from evalcore.gates.sequential import DIFFERENCES, CaseValue, SequentialRule
from evalcore.model.run import Plan
from evalcore.model.suite import Reducer, Suite, SuiteDefinition

# So many times at least the gates are looked at.
_LOOKS = 50


def sequential_rules(definition: SuiteDefinition, groups: int) -> dict[int, SequentialRule]:
    """Return the rules of the gates that can be decided early, by their place in the policy."""
    late = late_gates(definition, groups)
    gates = map(restore_gate, definition.policy.gates)
    return {
        index: gate.sequential
        for index, gate in enumerate(gates)
        if gate.sequential is not None and index not in late
    }


def late_gates(definition: SuiteDefinition, groups: int) -> dict[int, str]:
    """Return why gates that have a sequential rule need the whole run, by their place.

    The sequential tests take cases one by one: they know neither clusters nor the mean of groups.
    """
    reasons = {}
    for index, gate in enumerate(map(restore_gate, definition.policy.gates)):
        value = None if gate.sequential is None else gate.sequential.value
        if value in DIFFERENCES and definition.policy.cluster is not None:
            reasons[index] = "not decided early, because the cases come in clusters"
        elif value is CaseValue.SCORE and groups > 1:
            reasons[index] = "not decided early, because the score is a mean over groups"
    return reasons


def require_sequential(definition: SuiteDefinition) -> None:
    """Raise `UsageError` if no gate of the suite can be decided early."""
    gates = map(restore_gate, definition.policy.gates)
    if not any(gate.fails_early or gate.is_sequential for gate in gates):
        names = ", ".join(
            sorted(name for name, kind in GATES.items() if kind.is_sequential or kind.fails_early)
        )
        raise UsageError(
            f"suite '{definition.name}': stop_when_decided needs a gate that can be decided early: "
            f"{names}"
        )


def round_rules(definition: SuiteDefinition) -> dict[int, SequentialRule]:
    """Return the rules of the gates that can be decided after some iterations of all cases."""
    # A round has all cases: a score over several groups is decided as well as any.
    return sequential_rules(definition, groups=1)


def require_decidable(definition: SuiteDefinition) -> None:
    """Raise `UsageError` if iterations cannot be added to the suite until it is decided."""
    suite = f"suite '{definition.name}': --iterations auto"
    reducer = definition.policy.reducer
    if reducer is not Reducer.MEAN:
        raise UsageError(
            f"{suite} needs the reducer 'mean', not '{reducer}': a score that depends on the "
            "number of iterations cannot be decided before the last; give a number of iterations"
        )
    if not any(restore_gate(gate).is_sequential for gate in definition.policy.gates):
        names = ", ".join(sorted(name for name, kind in GATES.items() if kind.is_sequential))
        raise UsageError(f"{suite} needs a gate that can be decided early: {names}")


def in_stopping_order(suite: Suite, seed: int | None = None) -> tuple[Suite, dict[str, Any]]:
    """Return the suite with its cases in a random order, and how that was made, for the manifest.

    Without a `seed` a new one is drawn.
    Raises `UsageError` if no gate of the suite can be decided early.
    """
    from evalcore.history.fingerprints import digest_cases
    from evalcore.planning.spool import in_random_order

    groups = len({case.group for case in suite.cases})
    require_sequential(suite.definition)
    seed = int.from_bytes(os.urandom(4)) if seed is None else seed
    cases_sha256, _ = digest_cases(suite.cases.parts())
    order = {"seed": seed, "groups": groups, "cases_sha256": cases_sha256}
    return replace(suite, cases=in_random_order(suite.cases, seed)), order


def stopping_plan(plan: Plan) -> Plan:
    """Return the plan in shards of whole cases, so small that the run can stop between them."""
    cases = max(1, -(-plan.cases // _LOOKS))
    most = max(1, 5_000 // plan.items_per_case)
    size = max(min(cases, most), -(-plan.cases // 2_000)) * plan.items_per_case
    shards = -(-plan.items // size)
    return replace(plan, shard_size=size, shards=shards, pilot=0, settled=True)
