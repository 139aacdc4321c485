"""The part `comparison` of a report: every candidate against its baseline, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.model.comparison import (
    MEASURE_KINDS,
    Comparison,
    Difference,
    DifferenceKind,
    VariantComparison,
)
from evalcore.statistics.intervals import DIFFERENCES, bounded_interval
from evalcore.statistics.tests import mcnemar, paired_moments


def comparison_entries(comparison: Comparison | None) -> list[dict[str, Any]]:
    """Return one entry for each candidate, in the order of the variants; [] without a baseline."""
    return [] if comparison is None else [_entry(candidate) for candidate in comparison.variants]


def difference_entry(entry: Difference) -> dict[str, Any]:
    """Return a difference; what does not apply to its kind is left out."""
    values: dict[str, Any] = {
        "variant": entry.variant,
        "case": entry.case,
        "kind": entry.kind,
    }
    if entry.missing_from is not None:
        values["missing_from"] = entry.missing_from
    else:
        values |= {"baseline": entry.was, "candidate": entry.now}
    if entry.p is not None:
        values |= {"p": entry.p, "settled": entry.settled}
    return values


def _entry(candidate: VariantComparison) -> dict[str, Any]:
    return {
        "variant": candidate.variant,
        "baseline": candidate.baseline,
        "run": candidate.run,
        "compared": candidate.compared,
        "measured": {
            "baseline": {str(state): n for state, n in candidate.baseline_cases.items()},
            "candidate": {str(state): n for state, n in candidate.candidate_cases.items()},
            "both": candidate.measured_in_both,
        },
        "regressions": [difference_entry(entry) for entry in candidate.regressions],
        "improvements": [difference_entry(entry) for entry in candidate.improvements],
        "missing": [difference_entry(entry) for entry in candidate.missing],
        "complete": candidate.complete,
        "counts": {
            "regressions": _outcomes(candidate.regression_kinds),
            "improvements": _outcomes(candidate.improvement_kinds),
            "unsettled": {str(kind): n for kind, n in candidate.unsettled_kinds.items()},
            "missing": candidate.missing_count,
        },
        "measures": _measures(candidate),
        "score": _score(candidate),
        "passed": {
            "worse": candidate.worse,
            "better": candidate.better,
            "p": mcnemar(candidate.worse, candidate.better) if candidate.compared else None,
            "method": "mcnemar, exact",
        },
    }


def _outcomes(kinds: Mapping[DifferenceKind, int]) -> dict[str, int]:
    return {str(kind): number for kind, number in kinds.items() if kind not in MEASURE_KINDS}


def _measures(candidate: VariantComparison) -> dict[str, Any]:
    """Return the latency, cost and tokens of the run, and the cases in which they differ."""
    return {
        "run": {
            str(each.kind): {
                "baseline": each.was,
                "candidate": each.now,
                "cases": each.cases,
                "worse": candidate.regression_kinds.get(each.kind, 0),
                "better": candidate.improvement_kinds.get(each.kind, 0),
            }
            for each in candidate.measures
            if each.kind in MEASURE_KINDS
        },
        "worse": [difference_entry(entry) for entry in candidate.worse_measures],
        "better": [difference_entry(entry) for entry in candidate.better_measures],
    }


def _score(candidate: VariantComparison) -> dict[str, Any]:
    """Return the mean difference of the scores with its 95 % interval, null where there is none."""
    moments = paired_moments(candidate.paired)
    values: dict[str, Any] = {
        "difference": None if candidate.paired is None else candidate.paired.mean,
        "low": None,
        "high": None,
        "cases": 0 if candidate.paired is None else candidate.paired.cases,
    }
    if moments is None:
        clustered = candidate.paired is not None and candidate.paired.clustered
        few = "clusters" if clustered else "cases"
        return {**values, "reason": f"fewer than two shared {few}"}
    low, high, method = bounded_interval(moments, DIFFERENCES)
    return {**values, "low": low, "high": high, "method": f"paired difference, {method}, 95 %"}
