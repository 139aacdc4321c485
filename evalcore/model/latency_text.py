"""Latencies in milliseconds as people write them."""

from __future__ import annotations

import math


def latency_text(milliseconds: float | None) -> str:
    """Return a latency without its unit: `1,015`, `3`; below 1 its first digit: `0.4`, `0.03`.

    `–` for None.
    """
    if milliseconds is None:
        return "–"
    if not 0 < milliseconds < 1:
        return f"{milliseconds:,.0f}"
    decimals = min(15, -math.floor(math.log10(milliseconds)))
    return f"{milliseconds:.{decimals}f}".rstrip("0").rstrip(".")
