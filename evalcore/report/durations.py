"""A duration for people."""

from __future__ import annotations

_MINUTE_S, _HOUR_S = 60, 3_600


def duration_text(seconds: float) -> str:
    """Return a duration in the two largest units that it has: `2.5 s`, `3 min 20 s`, `5 h 02 min`.

    Below a minute with one decimal.
    """
    if round(seconds, 1) < _MINUTE_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02} min"
