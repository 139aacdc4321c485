"""The paired difference of a comparison: its moments (docs/reference/statistics.md)."""

from __future__ import annotations

from evalcore.model.comparison import Paired
from evalcore.statistics.intervals import Moments, clustered_moments, plain_moments


def paired_moments(paired: Paired | None) -> Moments | None:
    """Return the moments of candidate − baseline; None for fewer than two cases or clusters."""
    if paired is None:
        return None
    if paired.clusters is not None and paired.cluster_square_sum is not None:
        return clustered_moments(
            paired.cases, paired.mean, paired.clusters, paired.cluster_square_sum, paired.shape
        )
    return plain_moments(paired.cases, paired.mean, paired.square_sum, paired.shape)
