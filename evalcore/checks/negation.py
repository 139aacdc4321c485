"""The opposite of a verdict."""

from __future__ import annotations

from evalcore.checks.registry import load_check
from evalcore.mistakes.foreign_text import quote
from evalcore.model.assertion import Assertion, Outcome, Verdict


def apply_negation(assertion: Assertion, verdict: Verdict) -> Verdict:
    """Return the verdict that the assertion asks for: with `negate` the opposite of a measured one.

    Blocked and error stay as they are, and so does a comparison of nothing: what was not measured
    has no opposite.
    """
    if not (assertion.negate and verdict.measured):
        return verdict
    match verdict.outcome:
        case Outcome.PASSED:
            expected = (
                verdict.expected or load_check(assertion.check, assertion.params).expected_text()
            )
            what = assertion.check if expected is None else f"{assertion.check} {quote(expected)}"
            why = f": {verdict.message}" if verdict.message else ""
            return verdict._replace(
                outcome=Outcome.FAILED,
                score=1.0 - verdict.score,
                message=f"{what} holds, but must not{why}",
                expected=None if expected is None else f"not {expected}",
            )
        case Outcome.FAILED:
            details = verdict.details
            if details is not None and "failed_required" in details:
                details = {**details, "failed_required": []}
            return Verdict(
                Outcome.PASSED,
                1.0 - verdict.score,
                actual=verdict.actual,
                details=details,
                latency_ms=verdict.latency_ms,
                cost_usd=verdict.cost_usd,
            )
        case _:
            return verdict
