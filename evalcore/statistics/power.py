"""How many cases and iterations find a drop: the normal approximation of a paired comparison.

n = (z₁₋α/₂ + z₁₋β)² · (ω² + σ²_A/K_A + σ²_B/K_B) / δ²
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from evalcore.model.tolerance import ROUNDING
from evalcore.statistics.distributions import two_sided_t, two_sided_z
from evalcore.statistics.intervals import smallest


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of a paired comparison.

    `between` (ω²) is the variance of the true difference over cases, `baseline` and `candidate`
    (σ²) the mean variance of one iteration around its case's mean.
    """

    between: float
    baseline: float
    candidate: float

    def of_difference(self, baseline_iterations: float, candidate_iterations: float) -> float:
        """Return the variance of one case's difference of means."""
        noise = self.baseline / baseline_iterations + self.candidate / candidate_iterations
        return self.between + noise


@dataclass(frozen=True, slots=True)
class PowerTest:
    """A two-sided test at `alpha` that finds a drop with probability `power`, above α/2."""

    alpha: float = 0.05
    power: float = 0.8

    def quantiles(self, clusters: int | None = None) -> float:
        """Return z₁₋α/₂ + z₁₋β; of few clusters t₁₋α/₂ at their degrees of freedom + z₁₋β."""
        from statistics import NormalDist

        level = two_sided_z(self.alpha)
        if clusters is not None:
            level = two_sided_t(self.alpha, max(clusters - 1, 1))
        return level + NormalDist().inv_cdf(self.power)


def cases_needed(test: PowerTest, difference_variance: float, drop: float) -> int:
    """Return how many cases find a drop of this size."""
    needed = test.quantiles() ** 2 * difference_variance / drop**2
    return max(1, math.ceil(needed - ROUNDING))


def clusters_needed(test: PowerTest, cluster_variance: float, drop: float) -> int:
    """Return how many clusters find a drop of this size, two at least."""
    return smallest(
        lambda n: test.quantiles(n) * math.sqrt(cluster_variance / n) <= drop + ROUNDING, 2
    )


def smallest_drop(
    test: PowerTest, difference_variance: float, units: int, *, clustered: bool = False
) -> float:
    """Return the smallest drop that so many cases, or clusters, find."""
    quantiles = test.quantiles(units if clustered else None)
    return quantiles * math.sqrt(difference_variance / units)


def iterations_needed(
    test: PowerTest, spread: Spread, units: int, drop: float, *, clustered: bool = False
) -> int | None:
    """Return how many iterations on each side find a drop of this size over so many cases.

    None where no number does: the cases themselves differ too much. Of clusters, `units` is their
    number, and the spread is that of a cluster's mean.
    """
    quantiles = test.quantiles(units if clustered else None)
    left = units * (drop / quantiles) ** 2 - spread.between
    noise = spread.baseline + spread.candidate
    if noise == 0:
        return 1 if left >= 0 else None
    if left <= 0:
        return None
    return max(1, math.ceil(noise / left - ROUNDING))
