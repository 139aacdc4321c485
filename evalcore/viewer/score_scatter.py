"""The scatter of two variants' scores as marks of a picture: where, how large, in which colour."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final, NamedTuple

from evalcore.analytics.compare import ScatterPoint

SIZE: Final = 400.0
MARGIN: Final = 40.0
_LEAST_RADIUS: Final = 3.0
_MOST_RADIUS: Final = 11.0


class ScatterMark(NamedTuple):
    """A circle; `tone` is `worse` below the diagonal, `better` above it, `same` on it."""

    x: float
    y: float
    radius: float
    tone: str
    point: ScatterPoint


def scatter_marks(points: Sequence[ScatterPoint]) -> tuple[ScatterMark, ...]:
    """Return a circle for each point, its area by the number of cases; the largest first."""
    most = max((point.cases for point in points), default=1)
    return tuple(
        ScatterMark(
            round(MARGIN + point.was_score * SIZE, 1),
            round(SIZE + MARGIN / 4 - point.now_score * SIZE, 1),
            round(max(_LEAST_RADIUS, _MOST_RADIUS * sqrt(point.cases / most)), 1),
            _tone(point),
            point,
        )
        for point in points
    )


def _tone(point: ScatterPoint) -> str:
    if point.now_cell == point.was_cell:
        return "same"
    return "better" if point.now_cell > point.was_cell else "worse"
