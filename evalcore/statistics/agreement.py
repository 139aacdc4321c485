"""How well a judge agrees with people (docs/reference/statistics.md)."""

from __future__ import annotations

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
    n = confusion.n
    if not n:
        return None
    human = (confusion.true_pass + confusion.false_fail) / n
    judge = (confusion.true_pass + confusion.false_pass) / n
    by_chance = human * judge + (1 - human) * (1 - judge)
    if by_chance >= 1:
        return None
    return (confusion.agreed / n - by_chance) / (1 - by_chance)


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
