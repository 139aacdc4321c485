"""How well several annotators agree (docs/reference/statistics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from itertools import permutations
from math import fsum
from typing import NamedTuple

Rating = Hashable
Ratings = Mapping[str, Rating]
"""The labels of one unit by annotator; those who did not label it are not in it."""


class AgreementMeasure(StrEnum):
    """Which coefficient a number is."""

    COHEN_KAPPA = "cohen_kappa"
    KRIPPENDORFF_ALPHA = "krippendorff_alpha"


class AnnotatorAgreement(NamedTuple):
    """How well annotators agree on the units that at least two of them labelled.

    `value` is at most 1; 0 is chance. None where it cannot be computed: no two labels can be
    compared, or all are the same.
    """

    measure: AgreementMeasure
    value: float | None
    units: int
    annotators: int


def annotator_agreement(units: Sequence[Ratings], *, numeric: bool) -> AnnotatorAgreement:
    """Return Cohen's κ of two annotators, Krippendorff's α of more.

    With `numeric` ratings are numbers, and nearer ones agree more: squared differences count.
    """
    compared = [unit for unit in units if len(unit) > 1]
    names = sorted({name for unit in compared for name in unit})
    if len(names) == 2:
        pairs = [(unit[names[0]], unit[names[1]]) for unit in compared]
        value = cohen_kappa_of(pairs, numeric=numeric)
        return AnnotatorAgreement(AgreementMeasure.COHEN_KAPPA, value, len(compared), 2)
    value = krippendorff_alpha([list(unit.values()) for unit in compared], numeric=numeric)
    measure = AgreementMeasure.KRIPPENDORFF_ALPHA
    return AnnotatorAgreement(measure, value, len(compared), len(names))


def cohen_kappa_of(
    pairs: Sequence[tuple[Rating, Rating]], *, numeric: bool = False
) -> float | None:
    """Return Cohen's κ of two annotators: 1 − D_o / D_e; None where chance alone agrees on all.

    Nominal (Cohen 1960), with `numeric` weighted by squared differences (Cohen 1968).
    """
    if not pairs:
        return None
    n = len(pairs)
    observed = fsum(_distance(first, second, numeric) for first, second in pairs) / n
    firsts, seconds = Counter(first for first, _ in pairs), Counter(second for _, second in pairs)
    expected = fsum(
        count * other * _distance(first, second, numeric)
        for first, count in firsts.items()
        for second, other in seconds.items()
    ) / (n * n)
    return None if expected <= 0 else 1 - observed / expected


def krippendorff_alpha(units: Sequence[Sequence[Rating]], *, numeric: bool = False) -> float | None:
    """Return Krippendorff's α: 1 − D_o / D_e over the coincidences of labels within units.

    Units with fewer than two labels do not count. Nominal, with `numeric` interval. None where
    there is nothing to compare or all labels are the same. Krippendorff (2011), "Computing
    Krippendorff's Alpha-Reliability".
    """
    weights: dict[tuple[Rating, Rating], list[float]] = {}
    for ratings in units:
        if len(ratings) > 1:
            for pair in permutations(ratings, 2):
                weights.setdefault(pair, []).append(1 / (len(ratings) - 1))
    sums = {pair: fsum(shares) for pair, shares in weights.items()}
    totals: dict[Rating, float] = {}
    for (first, _), weight in sums.items():
        totals[first] = totals.get(first, 0.0) + weight
    n = fsum(totals.values())
    if n <= 1:
        return None
    observed = fsum(weight * _distance(*pair, numeric) for pair, weight in sums.items())
    expected = fsum(
        totals[first] * totals[second] * _distance(first, second, numeric)
        for first in totals
        for second in totals
    ) / (n - 1)
    return None if expected <= 0 else 1 - observed / expected


def _distance(first: Rating, second: Rating, numeric: bool) -> float:
    if numeric and isinstance(first, int | float) and isinstance(second, int | float):
        return float((first - second) ** 2)
    return float(first != second)
