"""Formulas behind gates over time and plans: the checked numbers, and scipy where it has them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from evalcore.statistics.intervals import (
    PowerTest,
    Spread,
    cases_needed,
    iterations_needed,
    smallest_drop,
    t_cdf,
    t_quantile,
    two_sided_t,
    two_sided_z,
    wilson,
)
from evalcore.statistics.sequential import MeanTest, mcnemar_e_value
from evalcore.statistics.tests import cusum, self_starting


# Every test process collects all tests, and the import takes a second.
@pytest.fixture(scope="module")
def stats() -> Any:
    from scipy import stats

    return stats


@pytest.fixture(scope="module")
def special() -> Any:
    from scipy import special

    return special


@pytest.mark.parametrize(
    ("noise", "iterations", "cases"), [(0.0, 1, 969), (1 / 6, 1, 3_876), (1 / 6, 4, 1_696)]
)
def test_power_gives_the_checked_numbers(noise: float, iterations: int, cases: int) -> None:
    variance = Spread(1 / 9, noise, noise).of_difference(iterations, iterations)
    assert cases_needed(PowerTest(), variance, 0.03) == cases
    assert smallest_drop(PowerTest(), variance, cases) <= 0.03
    assert smallest_drop(PowerTest(), variance, cases - 1) > 0.03


def test_iterations_are_not_promised_where_none_suffice() -> None:
    spread = Spread(1 / 9, 1 / 6, 1 / 6)
    assert iterations_needed(PowerTest(), spread, 1_696, 0.03) == 4
    assert iterations_needed(PowerTest(), spread, 500, 0.03) is None
    assert iterations_needed(PowerTest(), Spread(1 / 9, 0, 0), 500, 0.03) is None
    assert iterations_needed(PowerTest(), Spread(1 / 9, 0, 0), 1_000, 0.03) == 1


def test_anytime_mcnemar_gives_the_checked_numbers() -> None:
    assert mcnemar_e_value(5, 15) == pytest.approx(3.2206, abs=5e-5)
    assert mcnemar_e_value(8, 0) == pytest.approx(28.4, abs=0.05)
    assert mcnemar_e_value(0, 0) == 1.0
    assert mcnemar_e_value(9_000, 1_000) > 1e100


@pytest.mark.parametrize("df", [1, 2, 3, 9, 30, 199, 5_000])
@pytest.mark.parametrize("probability", [0.6, 0.9, 0.975, 0.995, 0.99999])
def test_students_quantile_is_that_of_scipy(probability: float, df: int, special: Any) -> None:
    assert t_quantile(probability, df) == pytest.approx(special.stdtrit(df, probability), rel=1e-9)
    assert t_cdf(1.7, df) == pytest.approx(special.stdtr(df, 1.7), rel=1e-10)


@pytest.mark.parametrize("alpha", [0.05, 1e-9, 1e-12, 1e-17, 1e-100])
def test_the_smallest_levels_have_quantiles(alpha: float, special: Any) -> None:
    assert two_sided_t(alpha, 30) == pytest.approx(-special.stdtrit(30, alpha / 2), rel=1e-6)
    assert two_sided_z(alpha) == pytest.approx(-special.ndtri(alpha / 2), rel=1e-7)
    interval = wilson(8, 10, alpha)
    assert interval is not None
    assert 0 <= interval.low < 0.8 < interval.high <= 1


def test_a_level_of_the_smallest_number_is_no_fault() -> None:
    assert 0 < two_sided_z(5e-324) < 39
    assert math.isfinite(two_sided_t(5e-324, 1))


def test_cusum_grows_while_values_fall() -> None:
    assert cusum([1.0, 0.8, 0.8, 1.2], mean=1.0, sigma=0.1) == pytest.approx([0, 0.15, 0.3, 0.05])


def test_self_started_values_are_standard_normal(stats: Any) -> None:
    source, scores = random.Random(11), list[float]()
    for _ in range(400):
        scores += self_starting([source.gauss(0.7, 0.02) for _ in range(30)], 0.0)
    assert stats.kstest(scores, "norm").pvalue > 0.01


def test_a_change_below_the_resolution_says_little() -> None:
    (*_, last) = self_starting([1.0] * 8 + [0.99], 0.01)
    assert -1.2 < last < 0
    (*_, last) = self_starting([1.0] * 8 + [0.99], 0.0)
    assert last < -5


def _ever_rejected(values: list[float], test: MeanTest, alpha: float) -> bool:
    bound = -math.log(alpha)
    for value in values:
        test.add(value)
        if test.log_above >= bound:
            return True
    return False


@pytest.mark.parametrize("population", [True, False])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_looking_after_each_case_keeps_the_level(share: float, population: bool) -> None:
    source, alarms, nights = random.Random(5), 0, 600
    for _ in range(nights):
        if population:
            passes = round(share * 100)
            values = source.sample([1.0] * passes + [0.0] * (100 - passes), 100)
        else:
            values = [float(source.random() < share) for _ in range(200)]
        alarms += _ever_rejected(values, MeanTest(share, 100 if population else None), 0.1)
    assert alarms / nights <= 0.1 + 2 * math.sqrt(0.1 * 0.9 / nights)


def test_a_clear_mean_is_decided_early() -> None:
    test = MeanTest(0.5, 1_000)
    for number in range(1_000):
        test.add(float(number % 10 != 0))
        if test.log_above >= -math.log(0.05):
            break
    assert test.n < 60
    assert test.log_below < 0


def test_what_is_left_can_make_certain() -> None:
    test = MeanTest(0.75, 4)
    test.add(0.0)
    assert test.log_below < 10
    test.add(0.0)
    assert test.log_below == math.inf
    exact = MeanTest(1.0, 10)
    exact.add(0.0)
    assert exact.log_below == math.inf


@pytest.mark.parametrize("values", [[0.0, 1.0, 0.5, 0.25], [1.0] * 30, [0.0] * 30])
def test_evidence_is_for_one_side_only(values: list[float]) -> None:
    test = MeanTest(0.5)
    for value in values:
        test.add(value)
        assert min(test.log_above, test.log_below) <= 0
