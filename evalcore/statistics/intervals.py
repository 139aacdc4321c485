"""Intervals of rates, means and quantiles, their distributions, and how many cases decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from evalcore.model.scoring import ROUNDING, reaches
from evalcore.model.summary import Sample, Shape, UnitSums
from evalcore.wording import counted

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
    # That of 95 % without loading the standard library's statistics.
    z = _Z_95 if alpha == 0.05 else two_sided_z(alpha)
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return Interval(low, high, "wilson")


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
    low = min(low, _GaffkeBound.of(moments, values.least).quantile(alpha / 2))
    high = max(high, -_GaffkeBound.of(_mirrored(moments), -values.most).quantile(alpha / 2))
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


class Estimate(NamedTuple):
    """The ends of an interval with its method, or the `reason` why there is none.

    `warning` says why the interval is to be taken with care.
    """

    low: float | None = None
    high: float | None = None
    method: str | None = None
    reason: str | None = None
    warning: str | None = None


def moments_of(sample: Sample) -> Moments | None:
    """Return the moments of a sample; None if its spread is not known."""
    if sample.standard_error is None:
        return None
    clusters = sample.units if sample.clustered else None
    return Moments(sample.n, sample.mean, sample.standard_error, sample.df, clusters, sample.shape)


def estimate_mean(sample: Sample, alpha: float = 0.05) -> Estimate:
    """Return the interval of a mean of scores, held in [0, 1]."""
    moments = moments_of(sample)
    if moments is None:
        return Estimate(reason=sample.reason)
    return _estimate(mean_interval(moments, alpha), sample)


def estimate_amount(sample: Sample, alpha: float = 0.05) -> Estimate:
    """Return Student's interval of a mean amount (latency, cost), held above 0.

    None of equal amounts: they have no bound that would hold without variance.
    """
    moments = moments_of(sample)
    if moments is None:
        return Estimate(reason=sample.reason)
    if moments.standard_error == 0:
        return Estimate(reason="all values are equal: an interval needs some that differ")
    low, high, method = t_interval(moments, alpha)
    return _estimate(Interval(max(0.0, low), high, method), sample)


def estimate_total(sample: Sample, total: float) -> Estimate:
    """Return the interval of the total of `sample.n` amounts, held above 0."""
    if sample.standard_error is None:
        return Estimate(reason=sample.reason)
    scaled = sample._replace(mean=total, standard_error=sample.standard_error * sample.n)
    return estimate_amount(scaled)


def estimate_rate(sample: Sample, alpha: float = 0.05) -> Estimate:
    """Return Wilson's interval of a share of cases, over its `effective_cases`."""
    if not sample.n or sample.passed is None:
        return Estimate(reason=sample.reason)
    low, high, method = wilson_share(sample.mean, effective_cases(sample, alpha), alpha)
    if sample.units != sample.n:
        method = "wilson, effective cases"
    return _estimate(Interval(low, high, method), sample)


def effective_cases(sample: Sample, alpha: float = 0.05) -> float:
    """Return how many independent cases say as much of a rate as the sample's.

    Of values in units of several (clusters, variants of a case): p(1 − p) over the squared standard
    error, of clusters times (z₁₋α/₂ / t₁₋α/₂)² at their degrees of freedom (Korn and Graubard
    1998), at most `n`. Of rates of 0 and 1, which show no spread, the number of units.
    """
    if sample.units == sample.n:
        return float(sample.n)
    plain = sample.mean * (1 - sample.mean)
    if not plain or not sample.standard_error:
        return float(sample.units)
    size = plain / sample.standard_error**2
    if sample.clustered:
        size *= (two_sided_z(alpha) / two_sided_t(alpha, sample.df)) ** 2
    return min(float(sample.n), size)


def _estimate(interval: Interval, sample: Sample) -> Estimate:
    warning = None
    if sample.clustered and sample.units < FEW_CLUSTERS:
        warning = f"only {counted(sample.units, 'cluster')}"
    return Estimate(*interval, warning=warning)


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
