"""The cases behind a rate or a mean: what its interval is computed from."""

from __future__ import annotations

from typing import NamedTuple


class Sample(NamedTuple):
    """`n` values around `mean`, in `units` (cases or clusters), `df` of them free.

    `standard_error` is None where there is none; `reason` says why. `passed` counts the values that
    are 1 where each is 0 or 1. `clustered`: the units are clusters. `noise` is the mean variance of
    one iteration around its case's mean; None where no case has two.
    """

    n: int
    mean: float
    units: int
    standard_error: float | None = None
    reason: str | None = None
    df: int = 0
    passed: int | None = None
    clustered: bool = False
    iterations: int = 1
    noise: float | None = None


NO_SAMPLE = Sample(0, 0.0, 0, reason="nothing is measured")
