"""What changed against the baseline, as forms list it: one entry after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from evalcore.model.summary import (
    HARD_KINDS,
    MEASURE_KINDS,
    Difference,
    DifferenceKind,
    VariantComparison,
    latency_text,
)
from evalcore.report.document import Report
from evalcore.report.figures import usd_text
from evalcore.wording import counted

REGRESSION = "regression"
IMPROVEMENT = "improvement"
MISSING = "missing"
CHANGE_MARKS: Final = {REGRESSION: "▼", IMPROVEMENT: "▲", MISSING: "?"}


class CaseChange(NamedTuple):
    """A case of a variant that differs from the baseline: in which way, and how.

    It stands for `differences` entries of the comparison, one for each kind. An `allowed`
    regression is that of a quarantined case, which no gate counts.
    """

    direction: str
    variant: str
    baseline: str
    case: str
    kind: str
    detail: str
    differences: int = 1
    allowed: bool = False

    @property
    def is_hard(self) -> bool:
        """Whether one of its kinds is of `HARD_KINDS`."""
        return not HARD_KINDS.isdisjoint(self.kind.split(", "))

    @property
    def title(self) -> str:
        """The direction, and whether it is allowed."""
        return f"allowed {self.direction}" if self.allowed else self.direction


class ChangedCases(NamedTuple):
    """How many cases of a variant changed, each counted once; `allowed` ones regressed, too."""

    regressed: int = 0
    allowed: int = 0
    improved: int = 0
    missing: int = 0

    @property
    def regressed_text(self) -> str:
        """The regressed cases; those that are allowed apart."""
        allowed = f" (+{self.allowed} allowed)" if self.allowed else ""
        return f"{self.regressed}{allowed}"


def compared(report: Report) -> tuple[VariantComparison, ...]:
    """Return the comparison of each variant that has a baseline."""
    comparison = report.summary.comparison
    return () if comparison is None else comparison.variants


def no_comparison(report: Report) -> tuple[str, ...]:
    """Return why variants were not compared where they could be expected to be."""
    comparison = report.summary.comparison
    if comparison is None:
        return ()
    # All candidates have the same reason where nothing is measured in their baseline.
    unmeasured = dict.fromkeys(compared.unmeasured for compared in comparison.variants)
    return (*(reason for reason in unmeasured if reason is not None), *comparison.unavailable)


def changes(report: Report) -> tuple[CaseChange, ...]:
    """Return the listed regressions of all variants, then what is missing, then improvements.

    They are of outcomes and scores (`measure_changes` has the others). The regressions of
    quarantined cases come last, and those of `HARD_KINDS` before those of scores.
    """
    variants = compared(report)
    quarantined = frozenset(report.quarantine.case_ids)
    regressions = [
        change._replace(allowed=change.case in quarantined)
        for each in variants
        for change in case_changes(each, REGRESSION, each.regressions)
    ]
    regressions.sort(key=lambda change: (change.allowed, not change.is_hard))
    return (
        *regressions,
        *(change for each in variants for change in case_changes(each, MISSING, each.missing)),
        *(
            change
            for each in variants
            for change in case_changes(each, IMPROVEMENT, each.improvements)
        ),
    )


def changed_cases(report: Report, candidate: VariantComparison) -> ChangedCases:
    """Return how many cases of a variant changed in outcome or score, listed or not."""
    quarantined = frozenset(report.quarantine.case_ids)
    # The counts of the comparison have quarantined cases, too.
    allowed = len({each.case for each in candidate.regressions if each.case in quarantined})
    return ChangedCases(
        max(0, candidate.regressed_cases - allowed),
        allowed,
        candidate.improved_cases,
        candidate.missing_count,
    )


class MeasureChange(NamedTuple):
    """A measure of a variant's whole run beside its baseline's, and how many cases differ."""

    variant: str
    baseline: str
    measure: str
    was: str
    now: str
    change: str
    worse: int
    better: int

    @property
    def text(self) -> str:
        """`latency 100 ms → 150 ms (+50%), 3 cases worse, 1 better`."""
        change = f" ({self.change})" if self.change else ""
        worse = f"{counted(self.worse, 'case')} worse, {self.better} better"
        return f"{self.measure} {self.was} → {self.now}{change}, {worse}"


def measure_changes(report: Report) -> tuple[MeasureChange, ...]:
    """Return the measures of which a case differs from the baseline by more than is tolerated."""
    return tuple(change for each in compared(report) for change in variant_measures(each))


def variant_measures(candidate: VariantComparison) -> Iterator[MeasureChange]:
    """Yield the measures of one variant of which a case differs from the baseline."""
    for each in candidate.measures:
        worse = candidate.regression_kinds.get(each.kind, 0)
        better = candidate.improvement_kinds.get(each.kind, 0)
        if each.kind not in MEASURE_KINDS or not worse + better:
            continue
        yield MeasureChange(
            *(candidate.variant, baseline_name(candidate), _MEASURES[each.kind]),
            *(_value(each.kind, each.was), _value(each.kind, each.now)),
            f"{each.now / each.was - 1:+.0%}" if each.was else "",
            *(worse, better),
        )


def baseline_name(variant: VariantComparison) -> str:
    """Return the baseline as people name it: a variant of this run, or of another one."""
    return variant.baseline if variant.run is None else f"{variant.baseline} of {variant.run}"


def case_changes(
    variant: VariantComparison, direction: str, differences: tuple[Difference, ...]
) -> Iterator[CaseChange]:
    """Yield the cases of such differences, each once."""
    name = baseline_name(variant)
    by_case: dict[str, list[Difference]] = {}
    for difference in differences:
        by_case.setdefault(difference.case, []).append(difference)
    for case, listed in by_case.items():
        kinds = ", ".join(difference.kind for difference in listed)
        detail = ", ".join(map(_detail, listed))
        yield CaseChange(direction, variant.variant, name, case, kinds, detail, len(listed))


def _detail(difference: Difference) -> str:
    """Return both values in their unit, and by how much a measure changed."""
    kind, was, now = difference.kind, difference.was, difference.now
    if difference.missing_from is not None:
        absent = difference.missing_from
        text = "on neither side" if absent == "both" else f"not in the {absent}"
    elif was is None and now is None:
        text = ""
    else:
        text = f"{_value(kind, was)} → {_value(kind, now)}"
        if kind in MEASURE_KINDS and was and now is not None:
            text += f" ({now / was - 1:+.0%})"
    doubts = [] if difference.p is None else [f"p {difference.p:.3g}"]
    if not difference.settled:
        doubts.append("may be chance")
    if doubts and difference.missing_from is None:
        text = f"{text} ({', '.join(doubts)})"
    return text if kind in _SPEAKING else f"{kind} {text}"


_MEASURES: Final = {
    DifferenceKind.LATENCY: "median latency",
    DifferenceKind.COST: "cost",
    DifferenceKind.TOKENS: "tokens",
}
_SPEAKING = frozenset({DifferenceKind.ASSERTION, DifferenceKind.MISSING})


def _value(kind: DifferenceKind, value: float | None) -> str:
    if value is None:
        return "–"
    match kind:
        case DifferenceKind.ASSERTION:
            text = {1.0: "passed", 0.0: "failed"}.get(value, f"{value:.4g}")
        case DifferenceKind.LATENCY:
            text = f"{latency_text(value)} ms"
        case DifferenceKind.COST:
            text = f"{usd_text(value)} USD"
        case DifferenceKind.TOKENS:
            text = f"{value:.0f} tokens"
        case _:
            text = f"{value:.4g}"
    return text
