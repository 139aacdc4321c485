"""Sequential tests, and the rounds in which they look."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from evalcore.model.scoring import ROUNDING

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
            squared_sum = self._sum**2 / self._n if self._n else 0.0
            variance = max(0.25 + self._squares - squared_sum, 0.0) / (self._n + 1)
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


def _bounded_stake(stake: float, most: float) -> float:
    """Return the stake, never below 0, and never so much that all could be lost."""
    if stake <= 0:
        return 0.0
    return min(stake, _MOST_OF_THE_STAKE / most) if most > 0 else stake


def _growth(stake: float, won: float) -> float:
    return math.log1p(stake * won) if stake else 0.0


_LARGEST_STAKE = 0.75
_SMALLEST_VARIANCE = 0.05
# How much the mean of all cases weighs in the prediction of a case, in iterations.
_PRIOR = 0.5


class RoundMeanTest:
    """A test of whether the mean of `rounds` iterations of all cases is above or below a boundary.

    An empirical Bernstein process (Waudby-Smith and Ramdas 2024, theorem 2): the stakes and the
    predictions of a round depend on earlier rounds only, and iterations of a case are drawn without
    replacement from those of the whole run. `weights` are those of the cases in the mean; their sum
    is 1. Values are in [0, 1]. A round that lacks a value ends the test undecided.
    """

    def __init__(
        self, boundary: float, weights: Sequence[float], rounds: int, alpha: float
    ) -> None:
        self._boundary = boundary
        self._rounds = rounds
        self._needed = math.log(1 / alpha)
        self._heaviest = max(weights, default=1.0)
        self._shares = [weight / self._heaviest for weight in weights]
        self._sums = [0.0] * len(self._shares)
        self._variance = 0.0
        self._total = 0.0
        self._above = self._below = 0.0
        self._usable = bool(self._shares)
        self.n = 0

    @property
    def mean(self) -> float:
        """The weighted mean of the rounds so far."""
        return self._total / max(self.n, 1)

    def add(self, values: Sequence[float | None]) -> None:
        """Take the values of the next round, in the order of the weights."""
        measured = [value for value in values if value is not None]
        if not self._usable or len(measured) != len(self._shares) or self.n >= self._rounds:
            self._usable = False
            return
        boundary = (self._rounds * self._boundary - self._total) / (self._rounds - self.n)
        misses = [
            value - prediction
            for value, prediction in zip(measured, self._predictions(measured), strict=True)
        ]
        edge = math.fsum(map(operator.mul, self._shares, measured)) - boundary / self._heaviest
        variance = self._expected_variance()
        self._above += self._growth(self._above, edge, variance, misses)
        self._below += self._growth(self._below, -edge, variance, misses)
        self._variance = math.fsum(
            (share * miss) ** 2 for share, miss in zip(self._shares, misses, strict=True)
        )
        self._sums = [total + value for total, value in zip(self._sums, measured, strict=True)]
        self._total += self._heaviest * math.fsum(map(operator.mul, self._shares, measured))
        self.n += 1

    @property
    def log_above(self) -> float:
        """The logarithm of the E-value against "the mean is below the boundary"."""
        if not self._usable:
            return 0.0
        certain = self._total >= self._rounds * (self._boundary - ROUNDING)
        return math.inf if certain else self._above

    @property
    def log_below(self) -> float:
        """The logarithm of the E-value against "the mean is at least the boundary"."""
        if not self._usable:
            return 0.0
        most = self._total + self._rounds - self.n
        certain = most < self._rounds * (self._boundary - ROUNDING)
        return math.inf if certain else self._below

    def _predictions(self, values: Sequence[float]) -> list[float]:
        """Return what each case is expected to give; each one only by what came before it."""
        if self.n:
            mean = self.mean
            weight = _PRIOR + self.n
            return [(_PRIOR * mean + total) / weight for total in self._sums]
        predictions, total = [], self._boundary
        for number, value in enumerate(values, 1):
            predictions.append(total / number)
            total += value
        return predictions

    def _expected_variance(self) -> float:
        """Return the expected sum of the squares by which the next round misses its predictions."""
        squares = [share * share for share in self._shares]
        if not self.n:
            first = max(self._boundary * (1 - self._boundary), _SMALLEST_VARIANCE)
            return first * math.fsum(squares)
        if self.n > 1:
            return self._variance
        expected = self._predictions(())
        return math.fsum(
            square * mean * (1 - mean) for square, mean in zip(squares, expected, strict=True)
        )

    def _growth(self, log_e: float, edge: float, variance: float, misses: Sequence[float]) -> float:
        """Return by how much the logarithm of an E-value changes in this round."""
        missing = max(self._needed - log_e, 1.0)
        stake = _LARGEST_STAKE
        if variance > 0:
            stake = min(stake, math.sqrt(2 * missing / variance))
        cost = math.fsum(
            -(math.log1p(-stake * share) + stake * share) * miss * miss
            for share, miss in zip(self._shares, misses, strict=True)
        )
        return stake * edge - cost
