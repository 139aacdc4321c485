"""CUSUM: whether a series of runs has moved away from where it was (Page 1954)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from evalcore.statistics.distributions import t_cdf

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
