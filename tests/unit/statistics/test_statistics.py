"""The formulas of docs/reference/statistics.md give the numbers that the page has checked."""

from __future__ import annotations

import math
import statistics

import pytest

from evalcore.model.summary import Sample, Shape, UnitSums
from evalcore.statistics import intervals as remedies
from evalcore.statistics.intervals import (
    DIFFERENCES,
    Moments,
    PowerTest,
    binomial_half_cdf,
    bounded_interval,
    cases_to_decide,
    clustered_moments,
    clusters_needed,
    effective_cases,
    estimate_rate,
    mean_interval,
    moments_of_units,
    p_below,
    plain_moments,
    smallest_drop,
    t_interval,
    two_sided_t,
    wilson,
)
from evalcore.statistics.tests import fisher, holm, iterations_to_decide, mcnemar


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


def moments_of(values: list[float], cluster: int | None = None) -> Moments:
    """Return the moments of values, with `cluster` of clusters of so many neighbours."""
    mean, size = statistics.fmean(values), cluster or 1
    starts = range(0, len(values), size)
    totals = [math.fsum(v - mean for v in values[start : start + size]) for start in starts]
    squares, fourths = (math.fsum(total**power for total in totals) for power in (2, 4))
    sums = UnitSums(len(totals), squares, min(totals), max(totals), fourths)
    moments = moments_of_units(len(values), mean, sums, clustered=cluster is not None)
    assert moments is not None
    return moments


# 1 − (α/2)^(1/n) at α = 0.05.
@pytest.mark.parametrize(
    ("n", "bound"), [(2, 0.841886117), (50, 0.071121736), (183, 0.019956001), (200, 0.018275340)]
)
def test_differences_without_variance_have_the_checked_bound(n: int, bound: float) -> None:
    low, high, _ = bounded_interval(moments_of([0.0] * n), DIFFERENCES)
    assert (-low, high) == pytest.approx((bound, bound), abs=1e-9)
    clustered = bounded_interval(moments_of([0.0] * 3 * n, cluster=3), DIFFERENCES)
    assert (clustered.low, clustered.high) == pytest.approx((low, high), abs=1e-12)
    assert mean_interval(moments_of([1.0] * n)).low == pytest.approx(1 - bound, abs=1e-9)


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize(
    ("passed", "n"), [(0, 20), (1, 50), (49, 50), (50, 50), (198, 200), (199, 200), (2, 2)]
)
def test_rare_passes_have_clopper_and_pearsons_bounds(passed: int, n: int, alpha: float) -> None:
    from scipy import stats

    moments = moments_of([1.0] * passed + [0.0] * (n - passed))
    student = t_interval(moments, alpha)
    low = stats.beta.ppf(alpha / 2, passed, n - passed + 1) if passed else 0.0
    high = stats.beta.ppf(1 - alpha / 2, passed + 1, n - passed) if passed < n else 1.0
    found = mean_interval(moments, alpha)
    assert found.low == pytest.approx(max(0.0, min(student.low, low)), abs=1e-12)
    assert found.high == pytest.approx(min(1.0, max(student.high, high)), abs=1e-12)
    assert "extended for rare differences" in found.method


SAMPLES: dict[str, tuple[list[float], int | None]] = {
    "no difference": ([0.0] * 50, None),
    "few are lost": ([-1.0] * 2 + [0.0] * 98, None),
    "few differ": ([-1.0, 1.0, 1 / 3] + [0.0] * 60, None),
    "many differ": ([-0.5, 0.25, 0.5, 0.0] * 10, None),
    "a cluster is lost": ([-1.0] * 5 + [0.0] * 95, 5),
    "clusters differ": ([-1.0, -1.0, 0.5, 0.5, 0.0, 0.0] * 4, 2),
}


@pytest.mark.parametrize("alpha", [0.05, 0.2])
@pytest.mark.parametrize("name", SAMPLES)
def test_p_is_half_of_alpha_where_the_interval_ends(name: str, alpha: float) -> None:
    moments = moments_of(*SAMPLES[name])
    high = bounded_interval(moments, DIFFERENCES, alpha).high
    assert p_below(moments, high) == pytest.approx(alpha / 2, rel=1e-6)


@pytest.mark.parametrize(("n", "total"), [(2, 183), (50, 183), (182, 183), (183, 184)])
def test_cases_without_a_difference_are_enough_by_their_number(n: int, total: int) -> None:
    assert cases_to_decide(moments_of([0.0] * n), -0.02) == total - n


def test_of_rare_losses_the_variance_grows_with_their_share() -> None:
    # 1 % is lost. Where one in five samples loses more, 80 % of them still end above −0.02.
    more = cases_to_decide(moments_of([-1.0] + [0.0] * 99), -0.02)
    assert more is not None
    n = 100 + more
    for cases, decided in ((n - 1, False), (n, True)):
        share = 0.01 + 0.8416212 * math.sqrt(0.01 * 0.99 * (100 / 99) / cases)
        variance = 0.01 * 0.99 * (100 / 99) + (1 - 2 * 0.01) * (share - 0.01)
        error = math.sqrt(variance / cases)
        shape = Shape(-1.0, 0.0, 100.0)
        sample = Moments(cases, -share, error, cases - 1, shape=shape)
        assert (bounded_interval(sample, DIFFERENCES).low > -0.02) is decided


def sample_of_clusters(mean: float, error: float, clusters: int, n: int = 400) -> Sample:
    passed = round(mean * n)
    return Sample(n, mean, clusters, error, df=clusters - 1, passed=passed, clustered=True)


@pytest.mark.parametrize(
    ("sample", "effective"),
    [
        # .75 · .25 / .04² · (1.959964 / 2.131450)²
        (sample_of_clusters(0.75, 0.04, 16), 99.089436),
        (sample_of_clusters(0.75, 0.0001, 16), 400.0),
        (sample_of_clusters(1.0, 0.0, 16), 16.0),
        (Sample(400, 0.75, 400, 0.02, df=399, passed=300), 400.0),
        (Sample(400, 0.75, 200, 0.03, df=199, passed=300), 208.333333),
    ],
    ids=["clusters", "no more than the cases", "all pass", "single cases", "two variants"],
)
def test_effective_cases_are_those_of_korn_and_graubard(sample: Sample, effective: float) -> None:
    assert effective_cases(sample) == pytest.approx(effective, abs=1e-6)
    estimate = estimate_rate(sample)
    interval = wilson(sample.passed or 0, sample.n)
    assert interval is not None
    assert estimate.low is not None
    assert estimate.low <= interval.low + 1e-12


def test_the_cases_of_a_rate_are_those_of_the_larger_number_of_clusters() -> None:
    # Few clusters have a large t; the remedy's clusters are many, so that it is no longer needed.
    few, many = (
        remedies.remedy_of_threshold(sample_of_clusters(0.75, error, clusters, n), 0.8)
        for clusters, n, error in ((8, 40, 0.1), (80, 400, 0.1 / math.sqrt(10)))
    )
    totals = []
    for text, n in ((few, 40), (many, 400)):
        assert text is not None
        totals.append(n + int(text.split("about ")[1].split()[0]))
    assert totals[0] == pytest.approx(totals[1], abs=6)


# scipy's t quantile: the smallest n with (t + z₀.₈) · √(variance / n) ≤ drop.
@pytest.mark.parametrize(
    ("variance", "drop", "clusters"),
    [(0.04, 0.2, 10), (0.04, 0.1, 34), (0.155, 0.1, 124), (1 / 9, 0.05, 351), (0.01, 0.5, 3)],
    ids=str,
)
def test_so_many_clusters_find_a_drop(variance: float, drop: float, clusters: int) -> None:
    assert clusters_needed(PowerTest(), variance, drop) == clusters
    found = smallest_drop(PowerTest(), variance, clusters, clustered=True)
    assert found <= drop < smallest_drop(PowerTest(), variance, clusters - 1, clustered=True)


# All variance is noise of 3 iterations. Without it 50 cases have the bound .0711, 200 .0183.
@pytest.mark.parametrize(
    ("cases", "differing", "iterations"), [(50, 4, None), (200, 20, 13), (400, 200, 9)]
)
def test_iterations_do_not_promise_more_than_the_bound_without_variance(
    cases: int, differing: int, iterations: int | None
) -> None:
    moments = moments_of([1 / 3, -1 / 3] * (differing // 2) + [0.0] * (cases - differing))
    noise = moments.standard_error**2 * cases
    found = remedies.iterations_to_decide(moments, -0.02, 0.05, noise=noise, iterations=3)
    assert found == iterations


def test_iterations_that_would_decide_a_case() -> None:
    wanted = iterations_to_decide(3, 3, 1, 3, alpha=0.05)
    assert wanted is not None
    assert fisher(wanted, wanted, round(wanted / 3), wanted) <= 0.05
    before = wanted - 1
    assert fisher(before, before, round(before / 3), before) > 0.05
    assert iterations_to_decide(500, 500, 499, 500, alpha=0.05) is None
