"""Latencies as people write them: never 0 for what was measured."""

from __future__ import annotations

import pytest

from evalcore.model.summary import Metric, VariantSummary, latency_text
from evalcore.report.figures import variant_cells


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.4, "0.4"),
        (0.44, "0.4"),
        (0.031, "0.03"),
        (0.96, "1"),
        (1.4, "1"),
        (1015.2, "1,015"),
    ],
)
def test_a_latency_has_its_first_digit(milliseconds: float | None, text: str) -> None:
    assert latency_text(milliseconds) == text
    assert Metric.LATENCY.text(milliseconds) == text


def test_the_variants_of_a_report_show_it() -> None:
    variants = [VariantSummary("a", 1, 1, 1.0, p50_latency_ms=0.4)]
    heads, ((*_, latency),) = variant_cells(variants)
    assert (heads[2:], latency) == (["latency p50"], "0.4 ms")
