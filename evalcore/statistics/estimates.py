"""The 95 % interval of a reported rate or mean, from its sample."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.mistakes.wording import counted
from evalcore.model.sample import Sample
from evalcore.statistics.intervals import (
    FEW_CLUSTERS,
    Interval,
    Moments,
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
    return Moments(sample.n, sample.mean, sample.standard_error, sample.df, clusters)


def estimate_mean(sample: Sample, *, most: float | None = 1.0, alpha: float = 0.05) -> Estimate:
    """Return Student's interval of a mean, held in [0, `most`]."""
    moments = moments_of(sample)
    if moments is None:
        return Estimate(reason=sample.reason)
    low, high, method = t_interval(moments, alpha)
    high = high if most is None else min(most, high)
    return _estimate(Interval(max(0.0, low), high, method), sample)


def estimate_rate(sample: Sample, alpha: float = 0.05) -> Estimate:
    """Return Wilson's interval of a share of cases.

    Of values that come in units of several (clusters, variants of a case) it is that of the number
    of independent cases that would have the same standard error (Korn and Graubard 1998); of rates
    of 0 and 1, that of the number of units.
    """
    if not sample.n or sample.passed is None:
        return Estimate(reason=sample.reason)
    if sample.units == sample.n:
        interval = wilson_share(sample.mean, sample.n, alpha)
        return _estimate(interval, sample)
    plain = sample.mean * (1 - sample.mean)
    size = float(sample.units)
    if plain and sample.standard_error:
        size = min(float(sample.n), plain / sample.standard_error**2)
    low, high, _ = wilson_share(sample.mean, size, alpha)
    return _estimate(Interval(low, high, "wilson, effective cases"), sample)


def _estimate(interval: Interval, sample: Sample) -> Estimate:
    warning = None
    if sample.clustered and sample.units < FEW_CLUSTERS:
        warning = f"only {counted(sample.units, 'cluster')}"
    return Estimate(*interval, warning=warning)
