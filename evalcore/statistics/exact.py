"""Exact tests of pass and fail: McNemar over cases, Fisher over one case's iterations."""

from __future__ import annotations

import math

from evalcore.statistics.distributions import binomial_half_cdf

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
