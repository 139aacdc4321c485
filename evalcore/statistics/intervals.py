"""Intervals for proportions, means and paired differences (docs/reference/statistics.md)."""

from __future__ import annotations

import math
from typing import NamedTuple

from evalcore.model.tolerance import ROUNDING, reaches
from evalcore.statistics.distributions import two_sided_t, two_sided_z

_NORMAL_DF = 1_000_000
FEW_CLUSTERS = 10
_Z_95 = 1.9599639845400536


class Interval(NamedTuple):
    """A two-sided interval and the name of the method that made it."""

    low: float
    high: float
    method: str


class Moments(NamedTuple):
    """What intervals of a mean need: how many values, their mean, their standard error.

    `df` are the degrees of freedom of the standard error: values or clusters less one.
    `clusters` is None where every value stands for itself.
    """

    n: int
    mean: float
    standard_error: float
    df: int
    clusters: int | None = None


def wilson(passed: int, n: int, alpha: float = 0.05) -> Interval | None:
    """Return Wilson's interval of a proportion; None without any trial."""
    return None if n == 0 else wilson_share(passed / n, n, alpha)


def wilson_share(share: float, n: float, alpha: float = 0.05) -> Interval:
    """Return Wilson's interval of a share of `n` trials; `n` is above 0 and may be effective."""
    z = _two_sided_quantile(alpha)
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return Interval(low, high, "wilson")


def _two_sided_quantile(alpha: float) -> float:
    """Return z₁₋α/₂; that of 95 % without loading the standard library's statistics."""
    return _Z_95 if alpha == 0.05 else two_sided_z(alpha)


def plain_moments(n: int, mean: float, square_sum: float) -> Moments | None:
    """Return the moments of `n` independent values; None for fewer than two.

    `square_sum` is the sum of the squared distances from the mean.
    """
    if n < 2:
        return None
    return Moments(n, mean, math.sqrt(square_sum / (n - 1) / n), n - 1)


def clustered_moments(
    n: int, mean: float, clusters: int, cluster_square_sum: float
) -> Moments | None:
    """Return the moments of values that come in clusters; None for fewer than two clusters.

    `cluster_square_sum` is the sum over the clusters of the squared sum of their values' distances
    from the mean.
    """
    if clusters < 2:
        return None
    error = math.sqrt(clusters / (clusters - 1) * cluster_square_sum) / n
    return Moments(n, mean, error, clusters - 1, clusters)


def t_interval(moments: Moments, alpha: float = 0.05) -> Interval:
    """Return Student's interval of the mean, not clipped."""
    half = two_sided_t(alpha, moments.df) * moments.standard_error
    method = "student-t" if moments.clusters is None else "student-t, clustered"
    return Interval(moments.mean - half, moments.mean + half, method)


def mean_interval(moments: Moments, alpha: float = 0.05) -> Interval:
    """Return Student's interval of a mean of scores, clipped to [0, 1]."""
    low, high, method = t_interval(moments, alpha)
    return Interval(max(0.0, low), min(1.0, high), method)


def cases_to_decide(moments: Moments, boundary: float, alpha: float = 0.05) -> int | None:
    """Return how many more values would move the interval off `boundary`, if all stays as it is.

    The mean and the spread stay; the quantile is that of the larger sample, with as many values in
    each cluster. At least 1; None where the mean lies on the boundary and no number would.
    """
    distance = abs(moments.mean - boundary)
    if reaches(0.0, distance):
        return None
    spread = moments.standard_error * math.sqrt(moments.n)
    units = (moments.df + 1) / moments.n

    def decides(n: int) -> bool:
        df = min(max(moments.df, math.floor(n * units) - 1), _NORMAL_DF)
        quantile = two_sided_t(alpha, df)
        return quantile * spread / math.sqrt(n) < distance - ROUNDING

    most = moments.n + 1
    while not decides(most):
        most *= 2
    # The half width falls with n: the smallest n that decides is between the last two.
    least = max(moments.n + 1, most // 2)
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if decides(middle) else (middle + 1, most)
    return least - moments.n
