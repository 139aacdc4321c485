"""Costs in US dollars as people write them."""

from __future__ import annotations

import math
from typing import Final

from evalcore.model.summary import Summary

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


_PARTS: Final = {
    "cached_tokens": "cached",
    "cache_write_tokens": "written to a cache",
    "input_audio_tokens": "audio",
    "reasoning_tokens": "reasoning",
    "output_audio_tokens": "audio",
}


def tokens_text(summary: Summary) -> str:
    """Return the tokens of a run: `12,000 in (9,000 cached) + 100 out (80 reasoning)`, "" for none.

    Kinds that were not used are left out.
    """
    sides = []
    for side, kinds in (
        ("in", ("cached_tokens", "cache_write_tokens", "input_audio_tokens")),
        ("out", ("reasoning_tokens", "output_audio_tokens")),
    ):
        total = summary.tokens.get("input_tokens" if side == "in" else "output_tokens")
        if total is None:
            continue
        parts = [f"{n:,} {_PARTS[kind]}" for kind in kinds if (n := summary.tokens.get(kind))]
        sides.append(f"{total:,} {side}" + (f" ({', '.join(parts)})" if parts else ""))
    batch = summary.tokens.get("batch_tokens")
    return " + ".join(sides) + (f" ({batch:,} in batches)" if batch else "")
