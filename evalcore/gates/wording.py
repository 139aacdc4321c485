"""Numbers and counts in the messages of gates."""

from __future__ import annotations


def number(value: float) -> str:
    """Return at most four decimals, more where rounding would make another number of a miss."""
    short = f"{value:.4f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
    # 0.89999 must not look like the 0.9 that it misses; 0.8889 for 8/9 misleads nobody.
    return short if len(short) == 6 or float(short) == value else f"{value:.10g}"


def counted(count: int, noun: str) -> str:
    """Return `1 case`, `2 cases`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
