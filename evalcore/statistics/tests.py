"""Tests of differences, and corrections for several of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from evalcore.model.scoring import is_below
from evalcore.model.summary import Paired
from evalcore.statistics.intervals import Moments, binomial_half_cdf, moments_of_units, t_cdf


def paired_moments(paired: Paired | None) -> Moments | None:
    """Return the moments of candidate − baseline; None for fewer than two cases or clusters."""
    if paired is None:
        return None
    return moments_of_units(paired.cases, paired.mean, paired.sums, clustered=paired.clustered)


_MOST_ITERATIONS = 500


def mcnemar(worse: int, better: int) -> float:
    """Return the exact two-sided p of `worse` against `better` discordant cases (1.0 for none)."""
    n = worse + better
    return 1.0 if n == 0 else min(1.0, 2 * binomial_half_cdf(min(worse, better), n))


def fisher(passed_a: int, n_a: int, passed_b: int, n_b: int) -> float:
    """Return Fisher's exact two-sided p: the tables as improbable as this one, or more so."""
    passed, every = passed_a + passed_b, n_a + n_b
    ways = math.comb(every, passed)
    observed = math.comb(n_a, passed_a) * math.comb(n_b, passed_b)
    total = 0
    for count in range(max(0, passed - n_b), min(passed, n_a) + 1):
        ways_of_count = math.comb(n_a, count) * math.comb(n_b, passed - count)
        if ways_of_count <= observed:
            total += ways_of_count
    return min(1.0, total / ways)


def iterations_to_decide(
    passed_a: int, n_a: int, passed_b: int, n_b: int, *, alpha: float
) -> int | None:
    """Return how many iterations of each would give p ≤ `alpha` at the same shares of passes.

    None for more than 500.
    """
    for n in range(max(n_a, n_b) + 1, _MOST_ITERATIONS + 1):
        scaled_a, scaled_b = round(passed_a / n_a * n), round(passed_b / n_b * n)
        if fisher(scaled_a, n, scaled_b, n) <= alpha:
            return n
    return None


def holm(tests: Sequence[tuple[float, int]], alpha: float) -> list[bool]:
    """Return which of the tests Holm's step-down rejects at `alpha`, all of them together.

    A test is its p and how many cases share it; the order of the answers is theirs.
    """
    left = sum(count for _, count in tests)
    rejected = [False] * len(tests)
    for index in sorted(range(len(tests)), key=lambda index: tests[index][0]):
        p, count = tests[index]
        # Equal ones fall together: the last of them meets the mildest bound.
        if is_below(alpha / left, p):
            break
        rejected[index] = True
        left -= count
    return rejected


_FURTHEST = 8.0


def cusum(values: Sequence[float], mean: float, sigma: float) -> list[float]:
    """Return S_t = max(0, S_{t−1} + (μ₀ − x_t) − σ/2) of a series: it grows while values fall."""
    sums, last = [], 0.0
    for value in values:
        last = max(0.0, last + (mean - value) - sigma / 2)
        sums.append(last)
    return sums


def self_starting(values: Sequence[float], resolution: float) -> Iterator[float]:
    """Yield each value from the third on in units of σ, by the mean and spread of those before it.

    Of independent normal values the result is exactly standard normal, so that no μ₀ and σ have to
    be known (Hawkins 1987). A spread below `resolution`, the smallest change that says anything,
    counts as `resolution`.
    """
    mean, squares = 0.0, 0.0
    for n, value in enumerate(values):
        if n >= 2:
            spread = max(math.sqrt(squares / (n - 1)), resolution)
            if spread == 0:
                yield 0.0 if value == mean else math.copysign(_FURTHEST, value - mean)
            else:
                t = math.sqrt(n / (n + 1)) * (value - mean) / spread
                yield _normal_score(t, n - 1)
        step = value - mean
        mean += step / (n + 1)
        squares += step * (value - mean)


def _normal_score(t: float, df: int) -> float:
    """Return the standard normal value that is as extreme as Student's `t`."""
    from statistics import NormalDist

    tail = t_cdf(-abs(t), df)
    size = _FURTHEST if tail <= 0 else min(_FURTHEST, -NormalDist().inv_cdf(tail))
    return math.copysign(size, t)
