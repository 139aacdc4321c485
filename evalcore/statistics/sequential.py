"""Tests that may be looked at after every case: E-values (docs/reference/statistics.md).

An E-value of at least 1/α rejects its hypothesis at any moment, however often it was looked at:
under the hypothesis it ever gets there with probability α at most (Ville 1939).
"""

from __future__ import annotations

import math

from evalcore.model.tolerance import ROUNDING

_MOST_OF_THE_STAKE = 0.75


def mcnemar_e_value(worse: int, better: int) -> float:
    """Return the anytime McNemar E-value of discordant cases: 2^(b+c)·Beta(b+1, c+1)."""
    n = worse + better
    logarithm = math.lgamma(worse + 1) + math.lgamma(better + 1) - math.lgamma(n + 2)
    return math.exp(min(n * math.log(2) + logarithm, 700.0))


class MeanTest:
    """A test of whether the mean of values in [0, 1] is above or below a boundary, by betting.

    The capital of a gambler who bets against the hypothesis is its E-value (Waudby-Smith and Ramdas
    2024, "Estimating means of bounded random variables by betting": the bets are aGRAPA's). Values
    come in a random order. With `population` they are drawn without replacement from so many, and
    the mean is that of all of them (their section 5); else it is that of the distribution.
    """

    def __init__(self, boundary: float, population: int | None = None) -> None:
        self._boundary = boundary
        self._population = population
        self._n = 0
        self._sum = 0.0
        self._squares = 0.0
        self._above = 0.0
        self._below = 0.0

    @property
    def n(self) -> int:
        """How many values were seen."""
        return self._n

    def add(self, value: float) -> None:
        """Take the next value."""
        null = self._conditional_boundary()
        if 0 <= null <= 1:
            mean = (0.5 + self._sum) / (self._n + 1)
            variance = max(0.25 + self._squares - self._n * _square_mean(self), 0.0) / (self._n + 1)
            edge = mean - null
            stake = edge / (variance + edge * edge) if edge else 0.0
            self._above += _growth(_bounded_stake(stake, null), value - null)
            self._below += _growth(_bounded_stake(-stake, 1 - null), null - value)
        self._n += 1
        self._sum += value
        self._squares += value * value

    @property
    def log_above(self) -> float:
        """The logarithm of the E-value against "the mean is at most the boundary"."""
        certain = self._population is not None and (
            self._sum > self._population * self._boundary + ROUNDING * self._population
        )
        return math.inf if certain else self._above

    @property
    def log_below(self) -> float:
        """The logarithm of the E-value against "the mean is at least the boundary"."""
        population = self._population
        certain = population is not None and (
            self._sum + population - self._n < population * (self._boundary - ROUNDING)
        )
        return math.inf if certain else self._below

    def _conditional_boundary(self) -> float:
        """Return the mean of the values to come if that of all is the boundary."""
        if self._population is None:
            return self._boundary
        left = self._population - self._n
        return (self._population * self._boundary - self._sum) / left if left > 0 else -1.0


def _square_mean(test: MeanTest) -> float:
    return (test._sum / test._n) ** 2 if test._n else 0.0


def _bounded_stake(stake: float, most: float) -> float:
    """Return the stake, never below 0, and never so much that all could be lost."""
    if stake <= 0:
        return 0.0
    return min(stake, _MOST_OF_THE_STAKE / most) if most > 0 else stake


def _growth(stake: float, won: float) -> float:
    return math.log1p(stake * won) if stake else 0.0
