"""The cases behind a rate or a mean: what its interval is computed from."""

from __future__ import annotations

import math
from typing import NamedTuple


class Shape(NamedTuple):
    """How the values of the units (cases, or means of clusters) lie.

    `least` and `most` are the smallest and the largest one. `kurtosis` is the mean fourth power of
    the distances from the mean over the squared variance: 1 at least, 3 of a normal distribution,
    infinite where all values are equal. Few units carry the variance where it is large.
    """

    least: float
    most: float
    kurtosis: float


def kurtosis_of(units: int, squares: float, fourth_powers: float) -> float:
    """Return the kurtosis from the sums of squared and fourth powers of distances from the mean."""
    return units * fourth_powers / squares**2 if squares else math.inf


class UnitSums(NamedTuple):
    """The distances of the units (cases or clusters) from the mean; a cluster's is its values' sum.

    `squares` and `fourth_powers` are sums over the `units`, `least` and `most` single distances.
    """

    units: int
    squares: float
    least: float
    most: float
    fourth_powers: float

    def shape(self, n: int, mean: float) -> Shape:
        """Return how the units' means lie, of `n` values in all."""
        size = n / self.units
        kurtosis = kurtosis_of(self.units, self.squares, self.fourth_powers)
        return Shape(mean + self.least / size, mean + self.most / size, kurtosis)


class Sample(NamedTuple):
    """`n` values around `mean`, in `units` (cases or clusters), `df` of them free.

    `standard_error` is None where there is none; `reason` says why. `passed` counts the values that
    are 1 where each is 0 or 1. `clustered`: the units are clusters. `noise` is the mean variance of
    one iteration around its case's mean; None where no case has two. `shape` is None where the
    values are not known to lie between bounds.
    """

    n: int
    mean: float
    units: int
    standard_error: float | None = None
    reason: str | None = None
    df: int = 0
    passed: int | None = None
    clustered: bool = False
    iterations: int = 1
    noise: float | None = None
    shape: Shape | None = None


NO_SAMPLE = Sample(0, 0.0, 0, reason="nothing is measured")
