"""Gates that lack labels are decided exactly where no label can change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from evalcore.model.annotation import AwaitedLabels
from evalcore.model.run import GateOutcome, GateResult, Manifest, Plan, State
from evalcore.model.suite import Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.target import Variant
from evalcore.pipeline.gates import decide_awaiting

PASS, FAIL, OPEN = GateOutcome.PASS, GateOutcome.FAIL, GateOutcome.INCONCLUSIVE
DEFINITION = SuiteDefinition(
    name="s",
    format=Format.SUITE,
    source=Source("s", "/", ""),
    policy=Policy(ScoreRule.WEIGHTED, gates=()),
    variants=(Variant("base"), Variant("new")),
)
MANIFEST = Manifest(
    id="20260518T100000Z-0a1b2c",
    suite="s",
    format="suite",
    state=State.RUNNING,
    mode="live",
    created_at="2026-05-18T10:00:00Z",
    source={},
    plan=Plan(2, 1, 2, 1, 1, 2, 1, 1),
    settings={},
    engine={},
)


def decided(
    without: GateOutcome, by_variants: dict[tuple[int, ...], GateOutcome], baseline: str | None
) -> GateResult:
    def gates_of(variants: Sequence[int]) -> Sequence[GateResult]:
        return (GateResult("g", by_variants[tuple(variants)], "with labels"),)

    definition = replace(DEFINITION, baseline=baseline)
    results = (GateResult("g", without, "without labels"),)
    (gate,) = decide_awaiting(definition, MANIFEST, AwaitedLabels(2, 2), results, gates_of)
    return gate


@pytest.mark.parametrize(
    ("without", "with_labels", "outcome"),
    [(PASS, PASS, PASS), (FAIL, FAIL, FAIL), (FAIL, PASS, OPEN), (PASS, FAIL, OPEN)],
)
def test_a_gate_waits_if_labels_could_change_it(
    without: GateOutcome, with_labels: GateOutcome, outcome: GateOutcome
) -> None:
    gate = decided(without, {(0, 1): with_labels}, None)

    assert gate.outcome is outcome
    if outcome is OPEN:
        assert gate.message.startswith("awaiting annotation: 2 labels are missing")
        assert gate.details["awaiting"] == {"labels": 2, "items": 2}


@pytest.mark.parametrize("sides", [(FAIL, PASS), (PASS, FAIL)], ids=["base only", "new only"])
def test_a_comparison_waits_if_the_labels_of_one_side_could_change_it(
    sides: tuple[GateOutcome, GateOutcome],
) -> None:
    outcomes = {(0, 1): PASS, (0,): sides[0], (1,): sides[1]}

    assert decided(PASS, outcomes, "base").outcome is OPEN
    assert decided(PASS, dict.fromkeys(outcomes, PASS), "base").outcome is PASS
