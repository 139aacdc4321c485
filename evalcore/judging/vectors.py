"""How near two vectors are."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of the angle; raise `ValueError` for vectors that have none."""
    if len(left) != len(right):
        raise ValueError(f"the embeddings have {len(left)} and {len(right)} dimensions")
    lengths = math.sqrt(math.fsum(x * x for x in left)) * math.sqrt(math.fsum(y * y for y in right))
    if not lengths or not math.isfinite(lengths):
        raise ValueError("an embedding has no direction")
    return math.fsum(x * y for x, y in zip(left, right, strict=True)) / lengths
