"""A score made of aspects that hold or do not, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from evalcore.mistakes.foreign_text import one_line
from evalcore.model.assertion import Outcome, Verdict
from evalcore.model.tolerance import reaches

DEFAULT_THRESHOLD = 0.8
_MAX_LISTED = 5


def aspect(text: str, passed: bool, weight: float = 1.0) -> dict[str, Any]:
    """Return one aspect as results have it."""
    entry = {"text": text, "passed": passed}
    return entry if weight == 1.0 else {**entry, "weight": weight}


def by_aspects(
    aspects: Sequence[Mapping[str, Any]], threshold: float | None, *, actual: str | None = None
) -> Verdict:
    """Return the verdict with the weighted share of the aspects that hold as its score."""
    weights = [entry.get("weight", 1.0) for entry in aspects]
    total = fsum(weights)
    passed_weight = fsum(
        weight for entry, weight in zip(aspects, weights, strict=True) if entry["passed"]
    )
    score = passed_weight / total if total else 1.0
    return scored(score, threshold, aspects, actual=actual)


def scored(
    score: float,
    threshold: float | None,
    aspects: Sequence[Mapping[str, Any]] = (),
    *,
    actual: str | None = None,
    message: str = "",
) -> Verdict:
    """Return the verdict on a score: passed from `threshold` (0.8) on, else with a message."""
    least = DEFAULT_THRESHOLD if threshold is None else threshold
    reached = reaches(score, least)
    unmet = [entry["text"] for entry in aspects if not entry["passed"]]
    if not unmet and not reached:  # each holds, and the score is below all the same
        unmet = [entry["text"] for entry in aspects]
    parts = [f"score {score:.4g} < {least:g}"] if not reached else []
    parts.extend([message] if message else unmet[:_MAX_LISTED])
    if len(unmet) > _MAX_LISTED and not message:
        parts.append(f"and {len(unmet) - _MAX_LISTED} more")
    return Verdict(
        Outcome.PASSED if reached else Outcome.FAILED,
        score,
        one_line("; ".join(parts)),
        actual=actual,
        expected=f"≥ {least:g}",
        details={"assertions": [dict(entry) for entry in aspects]} if aspects else None,
    )
