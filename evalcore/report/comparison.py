"""The part `comparison` of a report: every candidate against its baseline, as JSON values."""

from __future__ import annotations

from typing import Any

from evalcore.model.comparison import Comparison, Difference, VariantComparison
from evalcore.statistics.exact import mcnemar
from evalcore.statistics.intervals import t_interval
from evalcore.statistics.paired import paired_moments


def comparison_entries(comparison: Comparison | None) -> list[dict[str, Any]]:
    """Return one entry for each candidate, in the order of the variants; [] without a baseline."""
    return [] if comparison is None else [_entry(one) for one in comparison.variants]


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


def _entry(one: VariantComparison) -> dict[str, Any]:
    return {
        "variant": one.variant,
        "baseline": one.baseline,
        "run": one.run,
        "compared": one.compared,
        "measured": {
            "baseline": {str(state): n for state, n in one.baseline_cases.items()},
            "candidate": {str(state): n for state, n in one.candidate_cases.items()},
            "both": one.measured_in_both,
        },
        "regressions": [difference_entry(entry) for entry in one.regressions],
        "improvements": [difference_entry(entry) for entry in one.improvements],
        "missing": [difference_entry(entry) for entry in one.missing],
        "complete": one.complete,
        "counts": {
            "regressions": {str(kind): n for kind, n in one.regression_kinds.items()},
            "improvements": {str(kind): n for kind, n in one.improvement_kinds.items()},
            "unsettled": {str(kind): n for kind, n in one.unsettled_kinds.items()},
            "missing": one.missing_count,
        },
        "score": _score(one),
        "passed": {
            "worse": one.worse,
            "better": one.better,
            "p": mcnemar(one.worse, one.better) if one.compared else None,
            "method": "mcnemar, exact",
        },
    }


def _score(one: VariantComparison) -> dict[str, Any]:
    """Return the mean difference of the scores with its 95 % interval, null where there is none."""
    moments = paired_moments(one.paired)
    values: dict[str, Any] = {
        "difference": None if one.paired is None else one.paired.mean,
        "low": None,
        "high": None,
        "cases": 0 if one.paired is None else one.paired.cases,
    }
    if moments is None:
        few = "clusters" if one.paired is not None and one.paired.clusters is not None else "cases"
        return {**values, "reason": f"fewer than two shared {few}"}
    low, high, method = t_interval(moments)
    return {**values, "low": low, "high": high, "method": f"paired difference, {method}, 95 %"}
