"""The check of a script suite's test: the score that its statements gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.checks.subject import Subject
from evalcore.model.assertion import PASSED, Outcome, Verdict, broken
from evalcore.model.tolerance import reaches


def script_score(params: Mapping[str, Any], subject: Subject) -> Verdict:  # noqa: ARG001
    """Pass if the score reaches the case's threshold; the message holds the warnings."""
    details = subject.evidence.details
    score = details.get("score")
    if not isinstance(score, int | float):
        return broken("the evidence has no score: it is not of a script suite")
    threshold = subject.case.threshold
    passed = reaches(score, 1.0 if threshold is None else threshold)
    message = "; ".join(details.get("warnings", ()))
    if passed and score == 1.0 and not message:
        return PASSED  # which many tests share
    return Verdict(Outcome.PASSED if passed else Outcome.FAILED, float(score), message)
