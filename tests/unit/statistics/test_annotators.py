"""Agreement of annotators, with published examples."""

from __future__ import annotations

import pytest

from evalcore.statistics.agreement import (
    AgreementMeasure,
    annotator_agreement,
    cohen_kappa_of,
    krippendorff_alpha,
)

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section E: four observers,
# twelve units, missing data.
OBSERVERS = [
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
]
UNITS = [
    [int(value) for value in column if value != "."]
    for column in zip(*(row.split() for row in OBSERVERS), strict=True)
]
# https://en.wikipedia.org/wiki/Krippendorff%27s_alpha#A_computational_example
CODERS = [
    ". . . . . 3 4 1 2 1 1 3 3 . 3",
    "1 . 2 1 3 3 4 3 . . . . . . .",
    ". . 2 1 3 4 4 . 2 1 1 3 3 . 4",
]
CODED = [
    [int(value) for value in column if value != "."]
    for column in zip(*(row.split() for row in CODERS), strict=True)
]


@pytest.mark.parametrize(
    ("units", "numeric", "alpha"),
    [(UNITS, False, 0.743), (UNITS, True, 0.849), (CODED, False, 0.691), (CODED, True, 0.811)],
    ids=["2011 nominal", "2011 interval", "three coders nominal", "three coders interval"],
)
def test_alpha_is_that_of_published_examples(
    units: list[list[int]], numeric: bool, alpha: float
) -> None:
    assert krippendorff_alpha(units, numeric=numeric) == pytest.approx(alpha, abs=5e-4)


def test_kappa_is_that_of_a_published_example() -> None:
    # https://en.wikipedia.org/wiki/Cohen%27s_kappa#Simple_example: 50 applicants, two readers.
    pairs = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15

    assert cohen_kappa_of(pairs) == pytest.approx(0.4)


def test_weighted_kappa_forgives_near_misses() -> None:
    near = [(1, 2), (2, 1), (4, 5), (5, 4), (3, 3)]

    weighted, plain = cohen_kappa_of(near, numeric=True), cohen_kappa_of(near)
    assert plain is not None
    assert weighted is not None
    # By hand: D_o = 4/5; both margins are 1…5 once each, so D_e = 2·(25·11 − 225)/25 = 4.
    assert weighted == pytest.approx(1 - 0.8 / 4)
    assert plain < weighted


def test_two_annotators_have_a_kappa_and_more_an_alpha() -> None:
    two = [{"ann": "yes", "bo": "yes"}, {"ann": "no", "bo": "yes"}, {"ann": "no"}]
    three = [*two, {"ann": "no", "cy": "no"}]

    assert annotator_agreement(two, numeric=False)[0] is AgreementMeasure.COHEN_KAPPA
    assert annotator_agreement(two, numeric=False).units == 2
    agreement = annotator_agreement(three, numeric=False)
    assert (agreement.measure, agreement.annotators) == (AgreementMeasure.KRIPPENDORFF_ALPHA, 3)


@pytest.mark.parametrize("units", [[], [["yes"]], [["yes", "yes"], ["yes", "yes"]]])
def test_where_nothing_can_disagree_there_is_no_coefficient(units: list[list[str]]) -> None:
    assert krippendorff_alpha(units) is None
    assert cohen_kappa_of([(unit[0], unit[-1]) for unit in units]) is None
