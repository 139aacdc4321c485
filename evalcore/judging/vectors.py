"""How near two vectors are."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle; raise `ValueError` for vectors that have none."""
    if len(one) != len(other):
        raise ValueError(f"the embeddings have {len(one)} and {len(other)} dimensions")
    lengths = math.sqrt(math.fsum(x * x for x in one)) * math.sqrt(math.fsum(y * y for y in other))
    if not lengths or not math.isfinite(lengths):
        raise ValueError("an embedding has no direction")
    return math.fsum(x * y for x, y in zip(one, other, strict=True)) / lengths
