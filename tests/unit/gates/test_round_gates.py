"""Gates that are looked at after each iteration of all cases."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from evalcore.errors import UsageError
from evalcore.gates.builtin import PassRate, ScoreAtLeast
from evalcore.gates.comparing import NoSignificantRegression
from evalcore.gates.gate import CaseValue, Gate, SequentialRule
from evalcore.gates.over_time import NoDropFromHistory, Reliable
from evalcore.gates.sequential import (
    RoundGates,
    RoundItem,
    SeenValue,
    SequentialGate,
)
from evalcore.model.iterations import Iterations, parse_iterations
from evalcore.model.run import GateOutcome
from evalcore.model.suite import Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.pipeline.early_stop import require_early_gates

PASS, FAIL = GateOutcome.PASS, GateOutcome.FAIL


def items(scores: Sequence[float], variant: str = "a") -> list[RoundItem]:
    return [RoundItem(number, variant, "", score, score) for number, score in enumerate(scores)]


def gates_of(rule: SequentialRule, rounds: int = 8) -> RoundGates:
    return RoundGates({0: rule}, ["a"], None, rounds)


def differences(values: Sequence[float]) -> list[SeenValue]:
    return [
        SeenValue(number, CaseValue.PAST_DIFFERENCE, "a", value)
        for number, value in enumerate(values)
    ]


def test_a_clear_score_needs_one_round() -> None:
    gates = gates_of(SequentialRule(CaseValue.SCORE, 0.8))
    gates.add(items([1.0] * 100), ())
    assert (gates.rounds, gates.gates[0].outcome) == (1, PASS)


def test_nothing_is_decided_without_cases() -> None:
    rules = {number: SequentialRule(value, 0.5, k=2) for number, value in enumerate(CaseValue)}
    gates = RoundGates(rules, ["a"], None, 2)
    for _ in range(2):
        gates.add([], ())
    assert {gate.outcome for gate in gates.gates.values()} == {None}


def test_each_variant_has_to_reach_the_pass_rate() -> None:
    rule = SequentialRule(CaseValue.PASSED, 0.8, per_variant=True)
    gates = RoundGates({0: rule}, ["a", "b"], None, 8)
    gates.add([*items([1.0] * 100), *items([0.0] * 100, "b")], ())
    assert gates.gates[0].outcome is FAIL
    assert gates.gates[0].mean == 0.0


def test_reliability_is_decided_once_the_rest_cannot_change_it() -> None:
    gates = gates_of(SequentialRule(CaseValue.RELIABILITY, 0.9, k=3), rounds=4)
    gates.add(items([1.0] * 8 + [0.0] * 2), ())
    assert gates.gates[0].outcome is FAIL
    gates = gates_of(SequentialRule(CaseValue.RELIABILITY, 0.9, k=3), rounds=4)
    for number in range(1, 5):
        gates.add(items([1.0] * 10), ())
        assert (gates.gates[0].outcome is PASS) == (number == 4)


def test_a_difference_without_noise_is_given_up_after_two_rounds() -> None:
    gates = gates_of(SequentialRule(CaseValue.PAST_DIFFERENCE, -0.01, 0.025, per_variant=True))
    for _ in range(2):
        assert not gates.ended
        gates.add(items([0.5] * 20), differences([0.0] * 20))
    assert (gates.futile, gates.decided, gates.rounds) == (True, False, 2)


def test_a_difference_with_noise_is_not_given_up() -> None:
    gates = gates_of(SequentialRule(CaseValue.PAST_DIFFERENCE, -0.01, 0.025, per_variant=True))
    for number in range(4):
        gates.add(items([0.5] * 19 + [number / 4]), differences([0.0] * 20))
    assert not gates.ended


@pytest.mark.parametrize(
    ("gate", "refused"),
    [
        (NoSignificantRegression(), True),
        (NoDropFromHistory(), True),
        (PassRate(0.8), False),
        (ScoreAtLeast(0.8), False),
        (Reliable(2), False),
    ],
    ids=lambda value: getattr(value, "gate", ""),
)
def test_differences_over_clusters_are_not_decided_early(gate: Gate, refused: bool) -> None:
    policy = Policy(ScoreRule.BLOCKS, (gate.spec,), cluster="document", auto_iterations=True)
    suite = SuiteDefinition("s", Format.SUITE, Source("s", "", ""), policy)
    expected = pytest.raises(UsageError, match="in clusters") if refused else nullcontext()
    with expected:
        require_early_gates(suite, 1)


def test_a_stopped_pass_rate_pools_cases_of_unequal_variants_as_the_whole_run_does() -> None:
    # At so small a level only what is certain decides: the sum over all cases.
    source = random.Random(3)
    for _ in range(200):
        cases = [(variants := source.choice([1, 3]), source.randint(0, variants)) for _ in range(9)]
        rate = sum(passed for _, passed in cases) / sum(variants for variants, _ in cases)
        for shift, outcome in ((0.001, FAIL), (-0.001, PASS)):
            threshold = rate + shift
            rule = SequentialRule(CaseValue.PASSED, threshold, 1e-30)
            gate = SequentialGate(rule, ["a", "b", "c"], len(cases))
            for number, (variants, passed) in enumerate(cases):
                gate.add([SeenValue(number, CaseValue.PASSED, "", passed, variants)])
            if 0 <= threshold <= 1:
                assert gate.outcome is outcome, (cases, threshold)


@pytest.mark.parametrize(
    ("text", "iterations"),
    [
        (3, Iterations(3)),
        ("3", Iterations(3)),
        ("1001", Iterations(1001)),
        ("auto", Iterations(8, auto=True)),
        ("auto:20", Iterations(20, auto=True)),
    ],
)
def test_iterations_are_a_number_or_auto(text: str | int, iterations: Iterations) -> None:
    assert parse_iterations(text) == iterations


@pytest.mark.parametrize(
    "text", ["0", "", "-1", "auto:1", "auto:x", "1:2", "AUTO", "auto:1001", "1000001", "²"]
)
def test_iterations_that_are_none_of_both_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number of iterations"):
        parse_iterations(text)
