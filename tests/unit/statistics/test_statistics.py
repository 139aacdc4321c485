"""The formulas of docs/reference/statistics.md give the numbers that the page has checked."""

from __future__ import annotations

import math
import statistics

import pytest

from evalcore.model.sample import Shape
from evalcore.statistics.distributions import binomial_half_cdf, t_cdf, t_quantile, two_sided_t
from evalcore.statistics.exact import fisher, iterations_to_decide, mcnemar
from evalcore.statistics.intervals import (
    Moments,
    cases_to_decide,
    clustered_moments,
    mean_interval,
    plain_moments,
    t_interval,
    wilson,
)
from evalcore.statistics.multiplicity import holm


@pytest.mark.parametrize(
    ("passed", "n", "expected"),
    [
        (8, 10, (0.490162, 0.943318)),
        (0, 20, (0.0, 0.161125)),
        (20, 20, (0.838875, 1.0)),
        (150, 200, (0.685659, 0.804918)),
    ],
    ids=str,
)
def test_wilson_gives_the_checked_numbers(
    passed: int, n: int, expected: tuple[float, float]
) -> None:
    interval = wilson(passed, n)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(expected, abs=1e-6)


def test_no_trial_has_no_interval() -> None:
    assert wilson(0, 0) is None


# Student's quantiles from printed tables.
@pytest.mark.parametrize(
    ("probability", "df", "expected"),
    [
        (0.975, 1, 12.706204736),
        (0.975, 2, 4.302652730),
        (0.975, 10, 2.228138852),
        (0.995, 3, 5.840909310),
        (0.95, 30, 1.697260887),
        (0.025, 10, -2.228138852),
        (0.975, 199, 1.971956544),
        (0.975, 1_000_000, 1.959966357),
        (0.5, 7, 0.0),
    ],
    ids=str,
)
def test_t_quantile_gives_the_printed_numbers(probability: float, df: int, expected: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(expected, abs=5e-9)


@pytest.mark.parametrize("df", [1, 2, 5, 40, 3_000])
@pytest.mark.parametrize("probability", [0.0005, 0.1, 0.49, 0.7, 0.9995])
def test_t_quantile_inverts_the_distribution(probability: float, df: int) -> None:
    assert t_cdf(t_quantile(probability, df), df) == pytest.approx(probability, rel=1e-9)


@pytest.mark.parametrize(("k", "n"), [(0, 1), (3, 10), (5, 20), (49, 100), (-1, 3), (4, 4)])
def test_the_binomial_is_the_sum_of_its_terms(k: int, n: int) -> None:
    terms = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    assert binomial_half_cdf(k, n) == pytest.approx(terms, rel=1e-12)


CLUSTERS = [[1, 1, 0], [0, 0, 0, 0], [1, 1], [1, 0, 1], [1]]


def test_the_naive_standard_error_is_the_checked_number() -> None:
    values = [float(value) for cluster in CLUSTERS for value in cluster]
    mean = statistics.fmean(values)
    moments = plain_moments(13, mean, sum((value - mean) ** 2 for value in values))
    assert moments is not None
    assert moments.mean == pytest.approx(0.538462, abs=1e-6)
    assert moments.standard_error == pytest.approx(0.143910, abs=1e-6)


def test_the_clustered_standard_error_is_the_checked_number() -> None:
    mean = 7 / 13
    sums = sum(sum(value - mean for value in cluster) ** 2 for cluster in CLUSTERS)
    moments = clustered_moments(13, mean, 5, sums)
    assert moments is not None
    assert moments.standard_error == pytest.approx(0.210663, abs=1e-6)
    assert (moments.df, t_interval(moments).method) == (4, "student-t, clustered")


def test_the_paired_standard_error_is_the_checked_number() -> None:
    differences = [1.0] * 20 + [-1.0] * 10 + [0.0] * 170
    square_sum = sum((d - 0.05) ** 2 for d in differences)
    moments = plain_moments(200, 0.05, square_sum)
    assert moments is not None
    assert moments.standard_error == pytest.approx(0.027225, abs=1e-6)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_values_have_no_moments(n: int) -> None:
    assert plain_moments(n, 0.5, 0.0) is None
    assert clustered_moments(10, 0.5, n, 0.0) is None


def test_the_interval_of_a_mean_of_scores_is_clipped() -> None:
    interval = mean_interval(Moments(3, 0.9, 0.1, 2))
    assert (interval.high, interval.method) == (1.0, "student-t")
    assert interval.low == pytest.approx(0.9 - 4.302652730 * 0.1, abs=1e-8)


@pytest.mark.parametrize("score", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("off", [-1.1e-16, 1.1e-16, 2.2e-16])
def test_scores_that_differ_by_rounding_are_the_same(score: float, off: float) -> None:
    shape = Shape(min(score, score + off), max(score, score + off), 1.0)
    moments = plain_moments(3, score + off / 3, 0.0, shape)
    assert moments is not None
    exact = mean_interval(Moments(3, score, 0.0, 2, shape=Shape(score, score, math.inf)))
    assert mean_interval(moments)[:2] == pytest.approx(exact[:2], abs=1e-6)


@pytest.mark.parametrize(
    ("worse", "better", "p"),
    [(5, 15, 0.041389), (15, 5, 0.041389), (10, 20, 0.098737), (0, 0, 1.0), (3, 3, 1.0)],
)
def test_mcnemar_gives_the_checked_numbers(worse: int, better: int, p: float) -> None:
    assert mcnemar(worse, better) == pytest.approx(p, abs=1e-6)


@pytest.mark.parametrize(
    ("passes", "p"),
    [
        ((3, 3, 0, 3), 0.10),
        ((4, 4, 0, 4), 0.0286),
        ((5, 5, 0, 5), 0.0079),
        ((5, 5, 4, 5), 1.0),
        ((2, 2, 2, 2), 1.0),
        ((0, 5, 5, 5), 0.0079),
    ],
    ids=str,
)
def test_fisher_gives_the_checked_numbers(passes: tuple[int, int, int, int], p: float) -> None:
    assert fisher(*passes) == pytest.approx(p, abs=5e-5)


def test_holm_steps_down_until_the_first_that_stands() -> None:
    # The bounds: .05 / 4 = .0125, .05 / 3 = .0167, .05 / 2 = .025.
    tests = [(0.04, 1), (0.01, 1), (0.016, 1), (0.03, 1)]
    assert holm(tests, 0.05) == [False, True, True, False]


def test_holm_counts_the_cases_that_share_a_p() -> None:
    assert holm([(0.0079, 1), (1.0, 5)], 0.05) == [True, False]
    assert holm([(0.0079, 1), (1.0, 6)], 0.05) == [False, False]


def test_so_many_more_cases_move_four_of_five_intervals_off_the_boundary() -> None:
    for n in (2, 5, 20, 400):
        moments = Moments(n, 0.0, 0.02, n - 1)
        more = cases_to_decide(moments, -0.02)
        assert more is not None
        spread = moments.standard_error * math.sqrt(n)
        larger, smaller = (
            spread / math.sqrt(size) * (two_sided_t(0.05, size - 1) + 0.841621)
            for size in (n + more, n + more - 1)
        )
        assert larger < 0.02 <= smaller


def test_no_number_of_cases_moves_a_mean_off_its_boundary() -> None:
    assert cases_to_decide(Moments(20, -0.02, 0.02, 19), -0.02) is None


def test_iterations_that_would_decide_a_case() -> None:
    wanted = iterations_to_decide(3, 3, 1, 3, alpha=0.05)
    assert wanted is not None
    assert fisher(wanted, wanted, round(wanted / 3), wanted) <= 0.05
    before = wanted - 1
    assert fisher(before, before, round(before / 3), before) > 0.05
    assert iterations_to_decide(500, 500, 499, 500, alpha=0.05) is None
