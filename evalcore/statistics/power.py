"""How many cases and iterations find a difference or decide a gate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from evalcore.model.scoring import ROUNDING, reaches
from evalcore.model.summary import Sample
from evalcore.statistics.intervals import (
    DIFFERENCES,
    NORMAL_DF,
    SCORES,
    Z_OF_POWER,
    Moments,
    Range,
    cases_to_decide,
    decides_mostly,
    effective_cases,
    estimate_mean,
    estimate_rate,
    moments_of,
    smallest,
    two_sided_t,
    two_sided_z,
)


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


_MOST_CASES = 1_000_000
_MOST_ITERATIONS = 1_000


def remedy_of_threshold(sample: Sample, threshold: float, alpha: float = 0.05) -> str | None:
    """Return what would decide whether a score or pass rate reaches a threshold.

    None where the interval does not hold the threshold (it is decided), where the spread is not
    known, and for the thresholds 0 and 1, of which each case decides by itself.
    """
    if reaches(0.0, threshold) or reaches(threshold, 1.0):
        return None
    estimate = estimate_mean(sample, alpha=alpha)
    if sample.passed is not None:
        estimate = estimate_rate(sample, alpha)
    moments = moments_of(sample)
    if moments is None or estimate.low is None or estimate.high is None:
        return None
    if not estimate.low < threshold < estimate.high:
        return None
    if sample.passed is not None:
        # Further iterations change what a case has to do to pass: no number of them is known.
        more, repeats = _cases_of_rate(sample, threshold, alpha), None
    else:
        more = cases_to_decide(moments, threshold, alpha, values=SCORES)
        noise = None if sample.noise is None else sample.noise / sample.iterations
        repeats = iterations_to_decide(
            moments,
            threshold,
            alpha,
            noise=noise,
            iterations=sample.iterations,
            values=SCORES,
        )
    text = sizes(more, repeats, clustered=sample.clustered)
    return None if text is None else f"may be chance: {text} would tell"


def _cases_of_rate(sample: Sample, threshold: float, alpha: float) -> int | None:
    """Return how many more cases move Wilson's interval of the rate off the threshold.

    Its end reaches the threshold where the rate is z₁₋α/₂·√(t(1 − t)/n) away, at 80 % power:
    n = ((z₁₋α/₂·√(t(1 − t)) + z₀.₈·√(p(1 − p))) / (p − t))² effective cases of the larger sample.
    """
    rate = sample.mean
    distance = abs(rate - threshold)
    if reaches(0.0, distance):
        return None
    spread = two_sided_z(alpha) * math.sqrt(threshold * (1 - threshold))
    spread += Z_OF_POWER * math.sqrt(rate * (1 - rate))
    needed = (spread / distance) ** 2 - ROUNDING

    def decides(n: int) -> bool:
        units = round(n * sample.units / sample.n)
        error = sample.standard_error
        if error is not None:
            error *= math.sqrt(sample.n / n)
        df = min(max(sample.df, units - 1), NORMAL_DF)
        larger = sample._replace(n=n, units=units, standard_error=error, df=df)
        return effective_cases(larger, alpha) >= needed

    return smallest(decides, sample.n + 1) - sample.n


def remedy(more_cases: int | None, iterations: int | None, *, clustered: bool = False) -> str:
    """Return what would decide an inconclusive gate."""
    text = sizes(more_cases, iterations, clustered=clustered)
    if text is None:
        return "undecided: the value lies on the boundary, which no number of cases decides"
    return f"undecided: {text} would decide this gate"


def sizes(more_cases: int | None, iterations: int | None, *, clustered: bool) -> str | None:
    """Return `about 42 more cases or 3 iterations each`; None where no number decides."""
    if more_cases is None:
        return None
    ways = []
    if more_cases <= _MOST_CASES:
        clusters = " in new clusters of the same size" if clustered else ""
        ways.append(f"about {more_cases} more {'case' if more_cases == 1 else 'cases'}{clusters}")
    if iterations is not None:
        ways.append(f"{iterations} iterations each")
    return " or ".join(ways) if ways else f"only more than {_MOST_CASES} more cases"


def iterations_to_decide(
    moments: Moments,
    boundary: float,
    alpha: float,
    *,
    noise: float | None,
    iterations: int,
    values: Range = DIFFERENCES,
) -> int | None:
    """Return how many iterations of each case would decide; None where no number up to 1 000 does.

    Iterations take away noise only: the cases' own spread stays. `noise` is the part of a case's
    variance that comes of its `iterations`; None if it is not known.
    """
    if noise is None or noise <= 0 or moments.clusters is not None:
        return None
    between = max(0.0, moments.standard_error**2 * moments.n - noise)

    def decides(repeats: int) -> bool:
        error = math.sqrt((between + noise * iterations / repeats) / moments.n)
        return decides_mostly(moments._replace(standard_error=error), boundary, alpha, values)

    if iterations >= _MOST_ITERATIONS or not decides(_MOST_ITERATIONS):
        return None
    return smallest(decides, iterations + 1)
