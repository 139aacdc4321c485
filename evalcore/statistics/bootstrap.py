"""Percentile bootstrap of a mean over cases or clusters; the seed is part of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FEWEST_RESAMPLES = 10_000


class BootstrapInterval(NamedTuple):
    """A percentile interval; the same values, seed and number of resamples give it again."""

    low: float
    high: float
    seed: int
    resamples: int
    method: str = "bootstrap, percentile"


def bootstrap_mean(
    values: Sequence[float],
    clusters: Sequence[str] | None = None,
    *,
    seed: int,
    alpha: float = 0.05,
    resamples: int = FEWEST_RESAMPLES,
) -> BootstrapInterval | None:
    """Return the interval of the mean; None for fewer than two values or clusters.

    With `clusters` (one name for each value) whole clusters are drawn. Raises `ValueError` for
    fewer than 10 000 resamples. Loads scipy.
    """
    if resamples < FEWEST_RESAMPLES:
        raise ValueError(f"a bootstrap takes at least {FEWEST_RESAMPLES} resamples")
    groups: dict[object, list[float]] = {}
    for number, value in enumerate(values):
        groups.setdefault(number if clusters is None else clusters[number], []).append(value)
    if len(groups) < 2:
        return None
    import numpy
    from scipy.stats import bootstrap

    sums = numpy.array([sum(group) for group in groups.values()])
    sizes = numpy.array([len(group) for group in groups.values()])
    drawn = bootstrap(
        (sums, sizes),
        lambda total, size, axis: total.sum(axis=axis) / size.sum(axis=axis),
        n_resamples=resamples,
        batch=max(1, 4_000_000 // len(groups)),
        paired=True,
        vectorized=True,
        confidence_level=1 - alpha,
        method="percentile",
        rng=numpy.random.default_rng(seed),
    ).confidence_interval
    return BootstrapInterval(float(drawn.low), float(drawn.high), seed, resamples)
