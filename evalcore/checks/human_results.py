"""Results of the check `human`: whether labels are awaited, and what they would make of an item."""

from __future__ import annotations

from typing import Any

from evalcore.model.assertion import Assertion, AssertionResult, Outcome


def is_human(assertion: Assertion) -> bool:
    """Whether people make the check, also one at a path."""
    return "human" in (assertion.check, assertion.params.get("check"))


def is_awaiting(result: AssertionResult) -> bool:
    """Whether the result lacks labels."""
    return (
        result.outcome is Outcome.BLOCKED
        and result.details is not None
        and bool(result.details.get("missing"))
        and "annotation" in result.details
    )


def as_if_answered(result: AssertionResult) -> AssertionResult:
    """Return a result that lacks labels as people would pass it, any other one as it is."""
    if not is_awaiting(result):
        return result
    return result._replace(outcome=Outcome.PASSED, score=1.0)


def with_best_score(result: AssertionResult, score: float, outcome: Outcome) -> AssertionResult:
    """Return a result that lacks labels with what the item would come to with them."""
    if not is_awaiting(result):
        return result
    best: dict[str, Any] = {"score": score, "outcome": str(outcome)}
    return result._replace(details={**(result.details or {}), "if_passed": best})
