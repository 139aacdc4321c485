"""What would settle a decision that the cases at hand leave open: more cases, more iterations."""

from __future__ import annotations

import math

from evalcore.model.sample import Sample
from evalcore.model.tolerance import ROUNDING, reaches
from evalcore.statistics.distributions import two_sided_t
from evalcore.statistics.estimates import estimate_mean, estimate_rate, moments_of
from evalcore.statistics.intervals import Moments, cases_to_decide, t_interval

_MOST_CASES = 1_000_000
_MOST_ITERATIONS = 1_000


def remedy_of_threshold(sample: Sample, threshold: float, alpha: float = 0.05) -> str | None:
    """Return what would settle whether a score or pass rate reaches a threshold.

    None where the interval does not hold the threshold (it is settled), where the spread is not
    known, and for the thresholds 0 and 1, of which each case decides by itself.
    """
    moments = moments_of(sample)
    if moments is None or reaches(0.0, threshold) or reaches(threshold, 1.0):
        return None
    if sample.passed is None:
        estimate = estimate_mean(sample, alpha=alpha)
    else:
        estimate = estimate_rate(sample, alpha)
    if estimate.low is None or estimate.high is None:
        return None
    if not estimate.low < threshold < estimate.high:
        return None
    noise = None if sample.noise is None else sample.noise / sample.iterations
    return remedy(moments, threshold, alpha, noise=noise, iterations=sample.iterations)


def remedy(
    moments: Moments,
    boundary: float,
    alpha: float = 0.05,
    *,
    noise: float | None = None,
    iterations: int = 1,
) -> str | None:
    """Return what would move the interval of a mean off the boundary, if mean and spread stay.

    None if it is off the boundary already. `noise` is the part of a case's variance that comes of
    its `iterations`; None if it is not known.
    """
    low, high, _ = t_interval(moments, alpha)
    if not low <= boundary <= high:
        return None
    more = cases_to_decide(moments, boundary, alpha)
    if more is None:
        return "the value lies on the boundary: neither cases nor iterations would settle it"
    ways = []
    if more <= _MOST_CASES:
        clusters = "" if moments.clusters is None else " in as many new clusters"
        ways.append(f"about {more} more {'case' if more == 1 else 'cases'}{clusters}")
    repeats = iterations_to_settle(moments, boundary, alpha, noise=noise, iterations=iterations)
    if repeats is not None:
        ways.append(f"{repeats} iterations each")
    if not ways:
        return f"fewer than {_MOST_CASES} more cases would not settle it"
    return f"{' or '.join(ways)} would settle it"


def iterations_to_settle(
    moments: Moments, boundary: float, alpha: float, *, noise: float | None, iterations: int
) -> int | None:
    """Return how many iterations of each case would; None where no number up to 1 000 does.

    Iterations take away noise only: the cases' own spread stays.
    """
    if noise is None or noise <= 0 or moments.clusters is not None:
        return None
    distance = abs(moments.mean - boundary)
    quantile = two_sided_t(alpha, moments.df)
    total = moments.standard_error**2 * moments.n
    left = moments.n * (distance / quantile) ** 2 - max(0.0, total - noise)
    if left <= 0:
        return None
    needed = max(iterations + 1, math.ceil(noise * iterations / left - ROUNDING))
    return needed if needed <= _MOST_ITERATIONS else None
