"""Costs in US dollars as people write them."""

from __future__ import annotations

import math
from typing import Final

_DECIMALS: Final = 4
_DIGITS: Final = 3
_MOST_DECIMALS: Final = 15


def usd_text(value: float) -> str:
    """Return an amount without its unit, never in powers of ten: `12.5`, `0.0041`, `0.0000053`.

    It has at most 4 decimals; below 0.001 as many as its first three digits need.
    """
    size = abs(value)
    decimals = _DECIMALS
    if 0 < size < 10.0 ** (1 - _DECIMALS):
        decimals = min(_MOST_DECIMALS, _DIGITS - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
