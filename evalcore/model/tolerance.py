"""Comparisons of computed numbers, up to the rounding of the computation.

`0.8 * 3 / 3` is `0.7999999999999999` in doubles and reaches a threshold of 0.8
(docs/decisions/0006-epsilon.md). Scores themselves are never rounded.
"""

from __future__ import annotations

import math
from typing import Final

ROUNDING: Final = 1e-9


def reaches(value: float, threshold: float, scale: float = 1.0) -> bool:
    """Whether a computed value is at least the threshold, up to rounding.

    `scale` is the size of the numbers that the value is computed from; scores are at most 1.
    """
    return value >= threshold - ROUNDING * scale


def is_below(amount: float, limit: float) -> bool:
    """Whether a computed amount of any size is less than the limit, and not only by rounding."""
    return amount < limit and not math.isclose(amount, limit, rel_tol=ROUNDING)
