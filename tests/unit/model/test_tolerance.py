"""One tolerance for every comparison of computed numbers (docs/decisions/0006-epsilon.md)."""

import re
from pathlib import Path

import pytest

import evalcore
from evalcore.model.scoring import ROUNDING, is_below, reaches

SOURCES = Path(evalcore.__file__).parent


@pytest.mark.parametrize(
    ("value", "threshold", "scale", "expected"),
    [
        (0.8, 0.8, 1.0, True),
        (0.8 * 3 / 3 - 2e-16, 0.8, 1.0, True),
        (0.8 - 5e-10, 0.8, 1.0, True),
        (0.8 - 2e-9, 0.8, 1.0, False),
        (1000.0 - 5e-7, 1000.0, 1000.0, True),
        (1000.0 - 5e-7, 1000.0, 1.0, False),
    ],
)
def test_a_value_reaches_a_threshold_from_a_rounding_below_it(
    value: float, threshold: float, scale: float, expected: bool
) -> None:
    assert reaches(value, threshold, scale) is expected


@pytest.mark.parametrize(
    ("amount", "limit", "expected"),
    [(1.0, 2.0, True), (2.0, 2.0, False), (1e6 - 1e-4, 1e6, False), (1e6 - 1e-2, 1e6, True)],
)
def test_an_amount_is_below_a_limit_by_more_than_rounding(
    amount: float, limit: float, expected: bool
) -> None:
    assert is_below(amount, limit) is expected


def test_the_queries_compare_with_the_same_tolerance() -> None:
    written = {
        float(number)
        for path in SOURCES.rglob("*.sql")
        for number in re.findall(r"\b\d+e-\d+", path.read_text("utf-8"))
    }
    assert written == {ROUNDING}
