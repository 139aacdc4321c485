"""What changed against the baseline, as forms list it: one entry after another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from evalcore.model.comparison import Difference, Kind, VariantComparison
from evalcore.report.document import Report

REGRESSION = "regression"
IMPROVEMENT = "improvement"
MISSING = "missing"


class Change(NamedTuple):
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
    unmeasured = (one.unmeasured for one in comparison.variants)
    return (*(reason for reason in unmeasured if reason is not None), *comparison.unavailable)


def changes(report: Report) -> tuple[Change, ...]:
    """Return the listed regressions of all variants, then what is missing, then improvements."""
    variants = compared(report)
    return (
        *(one for variant in variants for one in _of(variant, REGRESSION, variant.regressions)),
        *(one for variant in variants for one in _of(variant, MISSING, variant.missing)),
        *(one for variant in variants for one in _of(variant, IMPROVEMENT, variant.improvements)),
    )


def baseline_name(variant: VariantComparison) -> str:
    """Return the baseline as people name it: a variant of this run, or of another one."""
    return variant.baseline if variant.run is None else f"{variant.baseline} of {variant.run}"


def _of(
    variant: VariantComparison, direction: str, differences: tuple[Difference, ...]
) -> Iterator[Change]:
    name = baseline_name(variant)
    by_case: dict[str, list[Difference]] = {}
    for one in differences:
        by_case.setdefault(one.case, []).append(one)
    for case, found in by_case.items():
        kinds = ", ".join(str(one.kind) for one in found)
        details = [
            _detail(one) if one.kind in _SPEAKING else f"{one.kind} {_detail(one)}" for one in found
        ]
        yield Change(direction, variant.variant, name, case, kinds, ", ".join(details), len(found))


def _detail(one: Difference) -> str:
    """Return both values in their unit, and by how much a measure changed."""
    if one.missing_from is not None:
        return "on neither side" if one.missing_from == "both" else f"not in the {one.missing_from}"
    said = ""
    if one.was is not None or one.now is not None:
        said = f"{_value(one.kind, one.was)} → {_value(one.kind, one.now)}"
        if one.kind in _RELATIVE and one.was and one.now is not None:
            said += f" ({one.now / one.was - 1:+.0%})"
    doubts = [] if one.p is None else [f"p {one.p:.3g}"]
    if not one.settled:
        doubts.append("may be chance")
    return f"{said} ({', '.join(doubts)})" if doubts else said


_SPEAKING = frozenset({Kind.ASSERTION, Kind.MISSING})
_RELATIVE = frozenset({Kind.LATENCY, Kind.COST, Kind.TOKENS})


def _value(kind: Kind, value: float | None) -> str:
    if value is None:
        return "–"
    match kind:
        case Kind.ASSERTION:
            text = {1.0: "passed", 0.0: "failed"}.get(value, f"{value:.4g}")
        case Kind.LATENCY:
            text = f"{value:.0f} ms"
        case Kind.COST:
            text = f"{value:.6g} USD"
        case Kind.TOKENS:
            text = f"{value:.0f} tokens"
        case _:
            text = f"{value:.4g}"
    return text
