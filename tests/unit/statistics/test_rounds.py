"""The test that is looked at after each iteration of all cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations, product

import pytest

from evalcore.statistics.sequential import RoundMeanTest

POPULATIONS = [
    [(0, 1), (0, 1), (1, 0)],
    [(0, 0), (1, 1), (0, 1)],
    [(0.2, 0.6), (0.9, 0.1), (0.5, 0.5)],
    [(0, 1, 1), (0, 0, 1)],
]


def reached(rounds: Sequence[Sequence[float]], boundary: float, most: int) -> tuple[float, float]:
    """Return the E-values above and below the boundary after these rounds."""
    cases = len(rounds[0])
    test = RoundMeanTest(boundary, [1 / cases] * cases, most, 0.05)
    for values in rounds:
        test.add(values)
    return math.exp(test.log_above), math.exp(test.log_below)


@pytest.mark.parametrize("population", POPULATIONS, ids=str)
@pytest.mark.parametrize("distance", [1e-6, 0.05, 0.2])
def test_the_expected_e_value_of_a_true_hypothesis_is_at_most_1(
    population: list[tuple[float, ...]], distance: float
) -> None:
    most = len(population[0])
    mean = sum(map(sum, population)) / most / len(population)
    orders = list(product(*(tuple(permutations(case)) for case in population)))
    for length in range(1, most + 1):
        above = below = 0.0
        for order in orders:
            rounds = [[case[number] for case in order] for number in range(length)]
            above += reached(rounds, mean + distance, most)[0] / len(orders)
            below += reached(rounds, mean - distance, most)[1] / len(orders)
        assert above <= 1 + 1e-9
        assert below <= 1 + 1e-9


def test_what_cases_differ_by_costs_nothing_after_the_first_round() -> None:
    """Cases that always pass or always fail settle a mean that cases of the first round leave."""
    steady = [[1.0] * 83 + [0.0] * 17] * 4
    noisy = [
        [float((case * 7 + number * 31) % 100 < 83) for case in range(100)] for number in range(4)
    ]
    assert reached(steady[:1], 0.8, 20)[0] < 20
    assert reached(steady, 0.8, 20)[0] > 20
    assert reached(noisy, 0.8, 20)[0] < 20


def test_all_iterations_decide_exactly() -> None:
    rounds = [[1.0, 0.0], [1.0, 1.0]]
    assert reached(rounds, 0.75, 2)[0] == math.inf
    assert reached(rounds, 0.76, 2)[1] == math.inf


def test_a_failure_decides_what_every_iteration_has_to_pass() -> None:
    assert reached([[1.0, 0.0]], 1.0, 8)[1] == math.inf
    assert reached([[1.0, 1.0]], 1.0, 8)[0] < 20


def test_weights_are_those_of_the_groups() -> None:
    test = RoundMeanTest(0.5, [0.5, 0.25, 0.25], 2, 0.05)
    test.add([1.0, 0.0, 0.0])
    assert test.mean == pytest.approx(0.5)


def test_a_missing_value_decides_nothing() -> None:
    test = RoundMeanTest(0.5, [0.5, 0.5], 3, 0.05)
    for _ in range(3):
        test.add([1.0, None])
    assert (test.log_above, test.log_below) == (0.0, 0.0)
