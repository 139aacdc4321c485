"""Agreement with people (docs/reference/statistics.md)."""

from __future__ import annotations

import pytest

from evalcore.statistics.agreement import (
    Confusion,
    agreement,
    cohen_kappa,
    corrected_rate,
    sensitivity,
    specificity,
)


def test_kappa_has_the_checked_number() -> None:
    found = Confusion(true_pass=45, false_pass=10, false_fail=5, true_fail=40)

    assert cohen_kappa(found) == pytest.approx(0.70)
    assert agreement(found) == 0.85
    assert (sensitivity(found), specificity(found)) == (0.9, 0.8)


def test_the_corrected_rate_has_the_checked_number() -> None:
    assert corrected_rate(0.70, 0.9, 0.8) == pytest.approx(0.714286, abs=1e-6)


@pytest.mark.parametrize("found", [Confusion(), Confusion(true_pass=5), Confusion(true_fail=5)])
def test_what_cannot_be_computed_is_none(found: Confusion) -> None:
    assert cohen_kappa(found) is None


def test_a_judge_no_better_than_chance_corrects_nothing() -> None:
    assert corrected_rate(0.5, 0.5, 0.5) is None


@pytest.mark.parametrize(("observed", "expected"), [(0.0, 0.0), (1.0, 1.0)])
def test_a_corrected_rate_is_a_rate(observed: float, expected: float) -> None:
    assert corrected_rate(observed, 0.9, 0.8) == expected
