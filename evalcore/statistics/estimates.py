"""The 95 % interval of a reported rate or mean, from its sample."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.mistakes.wording import counted
from evalcore.model.sample import Sample
from evalcore.statistics.distributions import two_sided_t, two_sided_z
from evalcore.statistics.intervals import (
    FEW_CLUSTERS,
    Interval,
    Moments,
    mean_interval,
    t_interval,
    wilson_share,
)


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
