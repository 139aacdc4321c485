"""Distribution functions: Student's t, the binomial, and the incomplete beta function behind them.

Written out here because scipy would take longer to import than a small run takes.
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_CLOSE = 1e-16
_TERMS = 10_000
_HALVINGS = 200
_COARSE = 1e-8
_SMALLEST = 5e-324


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), for a, b > 0 and 0 ≤ x ≤ 1.

    By its continued fraction (Abramowitz and Stegun 26.5.8), about 14 digits.
    """
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    # The fraction converges fast on this side of the mean only.
    if x > (a + 1) / (a + b + 2):
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    logarithm += a * math.log(x) + b * math.log1p(-x)
    return math.exp(logarithm) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """Return 1 + d1/(1 + d2/(1 + …)), evaluated by Lentz's method."""
    value = c = 1.0
    d = 0.0
    for term in range(1, _TERMS):
        half = term // 2
        if term % 2:
            factor = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            factor = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        d = 1.0 / ((1.0 + factor * d) or _TINY)
        c = (1.0 + factor / c) or _TINY
        value *= c * d
        if abs(c * d - 1.0) < _CLOSE:
            break
    return value


@lru_cache(maxsize=1024)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the x that I_x(a, b) = `probability`, for 0 < `probability` < 1 and a, b > 0."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in {low, high} or high - low < _CLOSE:
            break
        if incomplete_beta(a, b, middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_cdf(t: float, df: float) -> float:
    """Return P(T ≤ t) for Student's t with `df` degrees of freedom."""
    tail = incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2
    return tail if t < 0 else 1.0 - tail


@lru_cache(maxsize=256)
def t_quantile(probability: float, df: float) -> float:
    """Return the t that P(T ≤ t) = `probability`, for 0 < `probability` < 1."""
    if probability == 0.5:
        return 0.0
    # The upper tail loses digits to 1 − p; the lower one does not.
    below = min(probability, 1.0 - probability)
    low = -1.0
    while t_cdf(low, df) > below:
        low *= 2
    high = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle in {low, high}:
            break
        if t_cdf(middle, df) > below:
            high = middle
        else:
            low = middle
    return high if probability < 0.5 else -high


def two_sided_t(alpha: float, df: float) -> float:
    """Return the t that |T| exceeds with probability `alpha`, for 0 < `alpha` < 1."""
    # 1 − α/2 loses the digits of a small α. Of others it keeps the last digit of stored reports.
    if alpha >= _COARSE:
        return t_quantile(1 - alpha / 2, df)
    return -t_quantile(max(alpha / 2, _SMALLEST), df)


def two_sided_z(alpha: float) -> float:
    """Return the standard normal value that |Z| exceeds with probability `alpha`: z₁₋α/₂."""
    from statistics import NormalDist

    if alpha >= _COARSE:
        return NormalDist().inv_cdf(1 - alpha / 2)
    return -NormalDist().inv_cdf(max(alpha / 2, _SMALLEST))


def binomial_half_cdf(k: int, n: int) -> float:
    """Return P(Bin(n, ½) ≤ k)."""
    if k < 0:
        return 0.0
    return 1.0 if k >= n else incomplete_beta(n - k, k + 1, 0.5)
