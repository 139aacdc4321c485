"""A number of an option, within bounds: NaN is within none and infinity is no number to give."""

from __future__ import annotations

import math
from typing import Any

import click


class NumberRange(click.FloatRange):
    """`click.FloatRange`, which takes NaN for a number within any bounds, without it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; fail for what is none, is not finite or lies beyond the bounds."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number
