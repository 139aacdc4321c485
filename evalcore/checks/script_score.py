"""The check of a script suite's test: the score that its statements gave."""

from __future__ import annotations

from evalcore.checks.base import Check
from evalcore.checks.subject import Subject
from evalcore.model.assertion import PASSED, Outcome, Verdict, broken
from evalcore.model.tolerance import reaches


class ScriptScore(Check):
    """The score of the statements reaches the case's threshold; the message holds the warnings."""

    def check(self, subject: Subject) -> Verdict:
        """Read the score from the evidence."""
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
