"""Agreement of a judge with people and of people with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from itertools import permutations
from math import fsum
from typing import NamedTuple


class Confusion(NamedTuple):
    """Counts of a judge's verdicts by those of people; "pass" is the positive one."""

    true_pass: int = 0
    false_pass: int = 0
    false_fail: int = 0
    true_fail: int = 0

    @property
    def n(self) -> int:
        """How many were compared."""
        return sum(self)

    @property
    def agreed(self) -> int:
        """How many both say the same of."""
        return self.true_pass + self.true_fail


def agreement(confusion: Confusion) -> float | None:
    """Return the share that both say the same of; None without any."""
    return confusion.agreed / confusion.n if confusion.n else None


def cohen_kappa(confusion: Confusion) -> float | None:
    """Return Cohen's κ: (p_o − p_e) / (1 − p_e); None where chance alone agrees on all."""
    kinds = ((True, True), (False, True), (True, False), (False, False))
    each_count = zip(kinds, confusion, strict=True)
    return cohen_kappa_of([pair for pair, count in each_count for _ in range(count)])


def sensitivity(confusion: Confusion) -> float | None:
    """Return the share of what people pass that the judge passes; None without any."""
    passed = confusion.true_pass + confusion.false_fail
    return confusion.true_pass / passed if passed else None


def specificity(confusion: Confusion) -> float | None:
    """Return the share of what people fail that the judge fails; None without any."""
    failed = confusion.true_fail + confusion.false_pass
    return confusion.true_fail / failed if failed else None


def corrected_rate(observed: float, sensitive: float, specific: float) -> float | None:
    """Return the pass rate behind an observed one: (p̂ + Sp − 1) / (Se + Sp − 1), in [0, 1].

    None for a judge that is no better than chance (Se + Sp ≤ 1).
    """
    better = sensitive + specific - 1
    if better <= 0:
        return None
    return min(1.0, max(0.0, (observed + specific - 1) / better))


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
