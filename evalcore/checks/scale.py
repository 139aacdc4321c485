"""What a check measures, and whether its bounds decide before anything is measured."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.model.tolerance import is_below

Bounds = tuple[float | None, float | None]
"""The least and the most of a measure; None is no bound."""


class Scale(NamedTuple):
    """What a check compares with its bounds: the measure, and the least and the most it can be.

    `at_least` says that `threshold` is the least that passes; otherwise it is the most. `remedy` is
    what a file may write instead of bounds that decide nothing.
    """

    measure: str
    remedy: str
    highest: float | None = None
    lowest: float = 0.0
    at_least: bool = False

    def accepted(self, threshold: float | None) -> Bounds | None:
        """Return the measures that pass by a threshold; None without one."""
        if threshold is None:
            return None
        return (threshold, None) if self.at_least else (None, threshold)

    def certain(self, accepted: Bounds | None) -> bool | None:
        """Return the outcome that every measure has by these bounds; None if it depends on it."""
        if accepted is None:
            return None
        least, most = accepted
        if most is not None and is_below(most, self.lowest):
            return False
        if least is not None and self.highest is not None and is_below(self.highest, least):
            return False
        low = least is None or least <= self.lowest
        high = most is None or (self.highest is not None and most >= self.highest)
        return True if low and high else None

    @property
    def range_text(self) -> str:
        """The range of the measure."""
        bounds = f"{self.lowest:g} or more"
        return bounds if self.highest is None else f"{self.lowest:g} to {self.highest:g}"


def accepted_text(accepted: Bounds) -> str:
    """Return bounds in words: `at least 2`."""
    least, most = accepted
    if least is None:
        return "any" if most is None else f"at most {most:g}"
    if most is None:
        return f"at least {least:g}"
    return f"{least:g}" if least == most else f"{least:g} to {most:g}"


SHARE_REMEDY = "a threshold above 0, at most 1"


def share(measure: str) -> Scale:
    """Return the scale of a measure from 0 to 1 that has to reach a threshold."""
    return Scale(measure, SHARE_REMEDY, highest=1.0, at_least=True)
