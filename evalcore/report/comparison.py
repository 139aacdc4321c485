"""The part `comparison` of a report: every candidate against its baseline, as JSON values."""

from __future__ import annotations

from typing import Any

from evalcore.model.comparison import Comparison, Difference, VariantComparison
from evalcore.statistics.exact import mcnemar
from evalcore.statistics.intervals import DIFFERENCES, bounded_interval
from evalcore.statistics.paired import paired_moments


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
            "regressions": {str(kind): n for kind, n in candidate.regression_kinds.items()},
            "improvements": {str(kind): n for kind, n in candidate.improvement_kinds.items()},
            "unsettled": {str(kind): n for kind, n in candidate.unsettled_kinds.items()},
            "missing": candidate.missing_count,
        },
        "score": _score(candidate),
        "passed": {
            "worse": candidate.worse,
            "better": candidate.better,
            "p": mcnemar(candidate.worse, candidate.better) if candidate.compared else None,
            "method": "mcnemar, exact",
        },
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
