"""Numbers and counts in the messages of gates."""

from __future__ import annotations

from typing import Final

from evalcore.mistakes.wording import counted
from evalcore.model.summary import Counts

_SMALLEST: Final = 1e-12


def number(value: float) -> str:
    """Return at most four decimals, more where rounding would make another number of a miss.

    A small amount has as many decimals as it needs and no exponent: `0.0000053`. Messages of stored
    runs are made again, so the form of a number stays.
    """
    short = f"{value:.4f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
    # 0.89999 must not look like the 0.9 that it misses; 0.8889 for 8/9 is exact enough.
    if len(short) == 6 or float(short) == value:
        return short
    exact = f"{value:.10g}"
    if not _SMALLEST <= abs(value) < 1:
        return exact
    from decimal import Decimal

    return f"{Decimal(exact):f}"


def compared(value: float, sign: str, bound: float) -> str:
    """Return `0.75 < 0.8`; numbers that differ look different: `0.6666666667 < 0.6667` for 2/3."""
    left, right = number(value), number(bound)
    if sign == "<" and left == right:
        left, right = f"{value:.10g}", f"{bound:.10g}"
        if left == right:
            left, right = repr(value), repr(bound)
    return f"{left} {sign} {right}"


def unmeasured_items(counts: Counts) -> str:
    """Return how many items are not measured, and why: `of 5 items 2 in error, 1 skipped`."""
    states = {
        "in error": counts.error,
        "blocked": counts.blocked,
        "skipped": counts.skipped,
        "cancelled": counts.cancelled,
    }
    reasons = ", ".join(f"{count} {state}" for state, count in states.items() if count)
    if not reasons:
        return "no item was evaluated"
    return f"of {counted(counts.planned, 'item')} {reasons}"
