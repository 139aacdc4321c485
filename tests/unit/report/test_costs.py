"""Costs as people write them."""

from __future__ import annotations

import pytest

from evalcore.report.figures import usd_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-1e-20, "0"),
        (5.3e-06, "0.0000053"),
        (1e-10, "0.0000000001"),
        (0.0009996, "0.001"),
        (0.0041, "0.0041"),
        (12.5, "12.5"),
        (100.0, "100"),
        (12_345.678, "12,345.678"),
    ],
)
def test_a_cost_has_no_exponent_and_no_needless_zeros(value: float, text: str) -> None:
    assert usd_text(value) == text
