"""How a run that stops early is planned: in a random order, in small shards of whole cases."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from evalcore.errors import UsageError
from evalcore.gates.registry import GATES, restore_gate
from evalcore.gates.sequential import CaseValue, SequentialRule
from evalcore.model.run import Plan
from evalcore.model.suite import Reducer, Suite, SuiteDefinition

# So many times at least the gates are looked at.
_LOOKS = 50


def sequential_rules(definition: SuiteDefinition, groups: int) -> dict[int, SequentialRule]:
    """Return the rules of the gates that can be decided early, by their place in the policy.

    Of several groups the run's score is the mean of their means: it is not decided early.
    """
    rules = {}
    for index, gate in enumerate(map(restore_gate, definition.policy.gates)):
        rule = gate.sequential
        if rule is not None and not (rule.value is CaseValue.SCORE and groups > 1):
            rules[index] = rule
    return rules


def require_sequential(definition: SuiteDefinition, groups: int) -> None:
    """Raise `UsageError` if no gate of the suite can be decided early."""
    fails_early = any(restore_gate(gate).fails_early for gate in definition.policy.gates)
    if not sequential_rules(definition, groups) and not fails_early:
        names = ", ".join(
            sorted(name for name, kind in GATES.items() if kind.is_sequential or kind.fails_early)
        )
        several = " (a score over several groups cannot)" if groups > 1 else ""
        raise UsageError(
            f"suite '{definition.name}': stop_when_decided needs a gate that can be decided early"
            f"{several}: {names}"
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
    if not round_rules(definition):
        names = ", ".join(sorted(name for name, kind in GATES.items() if kind.is_sequential))
        raise UsageError(f"{suite} needs a gate that can be decided early: {names}")


def in_stopping_order(suite: Suite, seed: int | None = None) -> tuple[Suite, dict[str, Any]]:
    """Return the suite with its cases in a random order, and how that was made, for the manifest.

    Without a `seed` a new one is drawn.
    Raises `UsageError` if no gate of the suite can be decided early.
    """
    from evalcore.history.fingerprints import digest_cases
    from evalcore.planning.random_order import in_random_order

    groups = len({case.group for case in suite.cases})
    require_sequential(suite.definition, groups)
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
