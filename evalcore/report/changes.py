"""What changed against the baseline, as forms list it: one entry after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from evalcore.model.comparison import Difference, DifferenceKind, VariantComparison
from evalcore.report.costs import usd_text
from evalcore.report.document import Report

REGRESSION = "regression"
IMPROVEMENT = "improvement"
MISSING = "missing"


class CaseChange(NamedTuple):
    """A case of a variant that differs from the baseline: in which way, and how.

    It stands for `differences` entries of the comparison, one for each kind.
    """

    direction: str
    variant: str
    baseline: str
    case: str
    kind: str
    detail: str
    differences: int = 1


def compared(report: Report) -> tuple[VariantComparison, ...]:
    """Return the comparison of each variant that has a baseline."""
    comparison = report.summary.comparison
    return () if comparison is None else comparison.variants


def no_comparison(report: Report) -> tuple[str, ...]:
    """Return why variants were not compared where they could be expected to be."""
    comparison = report.summary.comparison
    if comparison is None:
        return ()
    unmeasured = (compared.unmeasured for compared in comparison.variants)
    return (*(reason for reason in unmeasured if reason is not None), *comparison.unavailable)


def changes(report: Report) -> tuple[CaseChange, ...]:
    """Return the listed regressions of all variants, then what is missing, then improvements."""
    variants = compared(report)
    return (
        *(change for each in variants for change in _of(each, REGRESSION, each.regressions)),
        *(change for each in variants for change in _of(each, MISSING, each.missing)),
        *(change for each in variants for change in _of(each, IMPROVEMENT, each.improvements)),
    )


def baseline_name(variant: VariantComparison) -> str:
    """Return the baseline as people name it: a variant of this run, or of another one."""
    return variant.baseline if variant.run is None else f"{variant.baseline} of {variant.run}"


def _of(
    variant: VariantComparison, direction: str, differences: tuple[Difference, ...]
) -> Iterator[CaseChange]:
    name = baseline_name(variant)
    by_case: dict[str, list[Difference]] = {}
    for difference in differences:
        by_case.setdefault(difference.case, []).append(difference)
    for case, listed in by_case.items():
        kinds = ", ".join(str(difference.kind) for difference in listed)
        details = [
            _detail(each) if each.kind in _SPEAKING else f"{each.kind} {_detail(each)}"
            for each in listed
        ]
        yield CaseChange(
            direction, variant.variant, name, case, kinds, ", ".join(details), len(listed)
        )


def _detail(difference: Difference) -> str:
    """Return both values in their unit, and by how much a measure changed."""
    if difference.missing_from is not None:
        absent = difference.missing_from
        return "on neither side" if absent == "both" else f"not in the {absent}"
    text = ""
    if difference.was is not None or difference.now is not None:
        kind, was, now = difference.kind, difference.was, difference.now
        text = f"{_value(kind, was)} → {_value(kind, now)}"
        if kind in _RELATIVE and was and now is not None:
            text += f" ({now / was - 1:+.0%})"
    doubts = [] if difference.p is None else [f"p {difference.p:.3g}"]
    if not difference.settled:
        doubts.append("may be chance")
    return f"{text} ({', '.join(doubts)})" if doubts else text


_SPEAKING = frozenset({DifferenceKind.ASSERTION, DifferenceKind.MISSING})
_RELATIVE = frozenset({DifferenceKind.LATENCY, DifferenceKind.COST, DifferenceKind.TOKENS})


def _value(kind: DifferenceKind, value: float | None) -> str:
    if value is None:
        return "–"
    match kind:
        case DifferenceKind.ASSERTION:
            text = {1.0: "passed", 0.0: "failed"}.get(value, f"{value:.4g}")
        case DifferenceKind.LATENCY:
            text = f"{value:.0f} ms"
        case DifferenceKind.COST:
            text = f"{usd_text(value)} USD"
        case DifferenceKind.TOKENS:
            text = f"{value:.0f} tokens"
        case _:
            text = f"{value:.4g}"
    return text
