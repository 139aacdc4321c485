"""Numbers in the messages of gates look different where they differ."""

from __future__ import annotations

import pytest

from evalcore.gates.gate import compared


@pytest.mark.parametrize(
    ("value", "sign", "bound", "text"),
    [
        (0.75, "<", 0.8, "0.75 < 0.8"),
        (2 / 3, "<", 0.6667, "0.6666666667 < 0.6667"),
        (2 / 3, "≥", 0.6666, "0.6667 ≥ 0.6666"),
        (999.99999999, "<", 1000.0, "999.99999999 < 1000.0"),
        (1000.0, "≥", 1000.0, "1000 ≥ 1000"),
    ],
)
def test_numbers_that_differ_look_different(
    value: float, sign: str, bound: float, text: str
) -> None:
    assert compared(value, sign, bound) == text
