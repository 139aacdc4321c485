"""Intervals for proportions, means and paired differences (docs/reference/statistics.md)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from evalcore.model.sample import Shape, UnitSums
from evalcore.model.tolerance import ROUNDING, reaches
from evalcore.statistics.distributions import (
    beta_quantile,
    incomplete_beta,
    t_cdf,
    two_sided_t,
    two_sided_z,
)

_HEAVY_TAILS = 4.0
NORMAL_DF = 1_000_000
FEW_CLUSTERS = 10
_Z_95 = 1.9599639845400536
# z₀.₈: sample sizes are those that decide in 80 % of the runs.
Z_OF_POWER = 0.8416212335729142


class Interval(NamedTuple):
    """A two-sided interval and the name of the method that made it."""

    low: float
    high: float
    method: str


class Moments(NamedTuple):
    """What intervals of a mean need: how many values, their mean, their standard error.

    `df` are the degrees of freedom of the standard error: values or clusters less one.
    `clusters` is None where every value stands for itself. `shape` is that of the values, or of the
    clusters' means; None where it is not known.
    """

    n: int
    mean: float
    standard_error: float
    df: int
    clusters: int | None = None
    shape: Shape | None = None

    @property
    def is_lopsided(self) -> bool:
        """Whether so few units carry the variance that Student's t is too sure, or none does."""
        if self.standard_error == 0:
            return True
        return self.shape is not None and self.shape.kurtosis > _HEAVY_TAILS


class Range(NamedTuple):
    """What a single value can be."""

    least: float
    most: float


SCORES = Range(0.0, 1.0)
DIFFERENCES = Range(-1.0, 1.0)


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


def plain_moments(
    n: int, mean: float, square_sum: float, shape: Shape | None = None
) -> Moments | None:
    """Return the moments of `n` independent values; None for fewer than two.

    `square_sum` is the sum of the squared distances from the mean.
    """
    if n < 2:
        return None
    return Moments(n, mean, math.sqrt(square_sum / (n - 1) / n), n - 1, shape=shape)


def clustered_moments(
    n: int, mean: float, clusters: int, cluster_square_sum: float, shape: Shape | None = None
) -> Moments | None:
    """Return the moments of values that come in clusters; None for fewer than two clusters.

    `cluster_square_sum` is the sum over the clusters of the squared sum of their values' distances
    from the mean.
    """
    if clusters < 2:
        return None
    error = math.sqrt(clusters / (clusters - 1) * cluster_square_sum) / n
    return Moments(n, mean, error, clusters - 1, clusters, shape)


def moments_of_units(n: int, mean: float, sums: UnitSums, *, clustered: bool) -> Moments | None:
    """Return the moments of `n` values in units; None for fewer than two units."""
    shape = sums.shape(n, mean)
    if clustered:
        return clustered_moments(n, mean, sums.units, sums.squares, shape)
    return plain_moments(n, mean, sums.squares, shape)


def t_interval(moments: Moments, alpha: float = 0.05) -> Interval:
    """Return Student's interval of the mean, not clipped."""
    half = two_sided_t(alpha, moments.df) * moments.standard_error
    method = "student-t" if moments.clusters is None else "student-t, clustered"
    return Interval(moments.mean - half, moments.mean + half, method)


def bounded_interval(moments: Moments, values: Range, alpha: float = 0.05) -> Interval:
    """Return the interval of a mean of values that lie in a range.

    Student's t; where few units carry the variance (a kurtosis above 4) or none does, it reaches at
    least to Gaffke's bounds, which hold there (Gaffke 2005; Learned-Miller and Thomas 2019): n
    equal differences of 0 give ∓(1 − (α/2)^(1/n)).
    """
    low, high, method = t_interval(moments, alpha)
    if not moments.is_lopsided:
        return Interval(low, high, method)
    low = min(low, _lower_bound(moments, values.least, alpha / 2))
    high = max(high, -_lower_bound(_mirrored(moments), -values.most, alpha / 2))
    return Interval(low, high, f"{method}, extended for rare differences")


def mean_interval(moments: Moments, alpha: float = 0.05) -> Interval:
    """Return the interval of a mean of scores, clipped to [0, 1]."""
    low, high, method = bounded_interval(moments, SCORES, alpha)
    return Interval(max(0.0, low), min(1.0, high), method)


def p_below(moments: Moments, boundary: float, values: Range = DIFFERENCES) -> float:
    """Return the one-sided p of "the mean is at least the boundary".

    It is α/2 where `bounded_interval` of the level 1 − α ends at the boundary.
    """
    distance = moments.mean - boundary
    if moments.standard_error == 0:
        p = 0.0 if distance < 0 else 1.0
    else:
        p = t_cdf(distance / moments.standard_error, moments.df)
    if not moments.is_lopsided:
        return p
    bound = _GaffkeBound.of(_mirrored(moments), -values.most)
    return max(p, bound.probability_below(-boundary))


class _GaffkeBound(NamedTuple):
    """The distribution of the mean with random weights, whose quantiles are lower bounds.

    The weights of the units and of one more value, the least possible one, are Dirichlet(1, …, 1).
    For values of which each is the least or the largest, the mean's distribution is a Beta (the
    bound is Clopper and Pearson's); for others it is the Beta of the same mean and variance on the
    same range, `low` to `low + width`.
    """

    low: float
    width: float
    a: float
    b: float

    @classmethod
    def of(cls, moments: Moments, least: float) -> _GaffkeBound:
        units, mean = moments.df + 1, moments.mean
        shape = moments.shape or Shape(mean, mean, math.inf)
        low = min(least, shape.least)
        width = max(shape.most, mean) - low
        if width <= ROUNDING:
            return cls(low, 0.0, 1.0, 1.0)
        square_sum = moments.standard_error**2 * units * (units - 1)
        centre = (units * mean + low) / (units + 1)
        square_sum += units * (mean - centre) ** 2 + (low - centre) ** 2
        share = (centre - low) / width
        variance = square_sum / (units + 1) / (units + 2) / width**2
        total = max(share * (1 - share) / variance - 1, 1.0)
        return cls(low, width, share * total, (1 - share) * total)

    def quantile(self, probability: float) -> float:
        return self.low + self.width * beta_quantile(probability, self.a, self.b)

    def probability_below(self, value: float) -> float:
        if not self.width:
            return 1.0
        return incomplete_beta(self.a, self.b, (value - self.low) / self.width)


def _lower_bound(moments: Moments, least: float, level: float) -> float:
    return _GaffkeBound.of(moments, least).quantile(level)


def _mirrored(moments: Moments) -> Moments:
    shape = moments.shape
    if shape is not None:
        shape = Shape(-shape.most, -shape.least, shape.kurtosis)
    return moments._replace(mean=-moments.mean, shape=shape)


def cases_to_decide(
    moments: Moments, boundary: float, alpha: float = 0.05, *, values: Range = DIFFERENCES
) -> int | None:
    """Return how many more values move the interval off `boundary` with 80 % power.

    The mean, the spread and the values per cluster stay as they are; the interval is that of
    `decides_mostly`, at the degrees of freedom of the larger sample. At least 1; None where the
    mean lies on the boundary and no number would.
    """
    if reaches(0.0, abs(moments.mean - boundary)):
        return None
    spread = moments.standard_error * math.sqrt(moments.n)
    units = (moments.df + 1) / moments.n

    def decides(n: int) -> bool:
        df = min(max(moments.df, math.floor(n * units) - 1), NORMAL_DF)
        sample = moments._replace(n=n, standard_error=spread / math.sqrt(n), df=df)
        return decides_mostly(sample, boundary, alpha, values)

    return smallest(decides, moments.n + 1) - moments.n


def decides_mostly(
    moments: Moments, boundary: float, alpha: float, values: Range = DIFFERENCES
) -> bool:
    """Whether the `bounded_interval` of four of five such samples excludes the boundary.

    The mean of the others is more than z₀.₈ standard errors nearer to it. Where few units carry the
    variance, it changes with the mean, as that of two values does: by least + most − 2 · mean times
    the mean's change.
    """
    if moments.mean > boundary:
        moments, boundary = _mirrored(moments), -boundary
        values = Range(-values.most, -values.least)
    change, error = Z_OF_POWER * moments.standard_error, moments.standard_error
    unlucky = moments.mean + change
    if moments.is_lopsided and (shape := moments.shape) is not None:
        slope = (shape.least + shape.most - 2 * moments.mean) / (moments.df + 1)
        error = math.sqrt(max(error**2 + slope * change, 0.0))
    sample = moments._replace(mean=unlucky, standard_error=error)
    return unlucky < boundary and p_below(sample, boundary - ROUNDING, values) <= alpha / 2


def smallest(holds: Callable[[int], bool], least: int) -> int:
    """Return the smallest number from `least` on that has a property; all larger ones have it."""
    most = least
    while not holds(most):
        least, most = most + 1, most * 2
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if holds(middle) else (middle + 1, most)
    return least
