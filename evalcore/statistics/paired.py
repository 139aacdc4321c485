"""The paired difference of a comparison: its moments (docs/reference/statistics.md)."""

from __future__ import annotations

from evalcore.model.comparison import Paired
from evalcore.statistics.intervals import Moments, moments_of_units


def paired_moments(paired: Paired | None) -> Moments | None:
    """Return the moments of candidate − baseline; None for fewer than two cases or clusters."""
    if paired is None:
        return None
    return moments_of_units(paired.cases, paired.mean, paired.sums, clustered=paired.clustered)
