"""Latency and cost of the variants side by side, for every form of the report."""

from __future__ import annotations

from collections.abc import Sequence

from evalcore.model.latency_text import latency_text
from evalcore.model.summary import VariantSummary
from evalcore.report.costs import usd_text

_NONE = "–"


def measure_columns(variants: Sequence[VariantSummary]) -> list[tuple[str, list[str]]]:
    """Return the head and the cells of each column, without a measure that no variant has."""
    columns = [
        ("latency p50", [_latency(variant.p50_latency_ms) for variant in variants]),
        ("cost", [_cost(variant.total_cost_usd) for variant in variants]),
    ]
    return [(head, cells) for head, cells in columns if set(cells) != {_NONE}]


def _latency(value: float | None) -> str:
    return _NONE if value is None else f"{latency_text(value)} ms"


def _cost(value: float | None) -> str:
    return _NONE if value is None else f"{usd_text(value)} USD"
