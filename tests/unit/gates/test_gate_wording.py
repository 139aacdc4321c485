"""Numbers in the messages of gates: short, and different where they differ."""

from __future__ import annotations

import pytest

from evalcore.gates.wording import compared, number


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8 / 9, "0.8889"),
        (-8 / 9, "-0.8889"),
        (0.89999, "0.89999"),
        (-0.019999, "-0.019999"),
        (0.0000053, "0.0000053"),
        (-0.0, "0"),
        (-1.37e-18, "0"),
        (0.0, "0"),
        (-2.0, "-2"),
        (1234.5, "1234.5"),
    ],
)
def test_a_number_is_short_and_of_both_signs_alike(value: float, text: str) -> None:
    assert number(value) == text


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
