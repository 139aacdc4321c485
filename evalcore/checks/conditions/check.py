"""The check of a saved eval: its assertion on the output handles that a replayed block left."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from pydantic import TypeAdapter

from evalcore.checks.base import Check
from evalcore.checks.conditions.base import ConditionServices
from evalcore.checks.conditions.eval_assertion import (
    AssertionReading,
    AssertionTarget,
    EvalAssertion,
    Handle,
    evaluate_assertion,
)
from evalcore.checks.conditions.kinds import AnyCondition
from evalcore.checks.subject import Subject
from evalcore.mistakes.foreign_text import json_text, shorten
from evalcore.model.assertion import Outcome, Verdict
from evalcore.model.evidence import Evidence

# Where a block's target leaves its handles in the details of the evidence.
HANDLE_OUTPUTS: Final = "handle_outputs"
# Why the block has no outputs.
BLOCK_ERROR: Final = "block_error"
_HANDLES: Final[TypeAdapter[dict[str, Any]]] = TypeAdapter(dict[str, Handle])


class EvalCondition(Check):
    """One condition on one output handle of a block, at an optional path."""

    nested: ClassVar[bool] = True

    target: AssertionTarget
    condition: AnyCondition
    label: str | None = None
    id: str | None = None

    async def check(self, subject: Subject) -> Verdict:
        """Return the verdict, with the whole assertion result in its details."""
        outputs = block_handles(subject.evidence)
        context = subject.context
        services = ConditionServices(context.judges, context.regex_timeout_s)
        assertion = EvalAssertion.model_construct(
            id=self.id, target=self.target, condition=self.condition, label=self.label
        )
        reading = await evaluate_assertion(
            assertion, outputs, services, block_error=subject.evidence.details.get(BLOCK_ERROR)
        )
        return _verdict(assertion, reading)

    def expected(self) -> str | None:
        """Return the expected value as JSON."""
        return shorten(json_text(self.condition.expected_value))


def block_handles(evidence: Evidence) -> dict[str, Any]:
    """Return the output handles that a replayed block left."""
    return _HANDLES.validate_python(evidence.details.get(HANDLE_OUTPUTS) or {})


def assertion_result(assertion: EvalAssertion, reading: AssertionReading) -> dict[str, Any]:
    """Return what an assertion came to, as the service shows it."""
    verdict = reading.verdict
    failure = None
    if verdict.outcome is not Outcome.PASSED:
        failure = {
            "code": "condition_not_met" if verdict.code is None else str(verdict.code),
            "message": verdict.message,
            "details": {
                "partial_path": verdict.partial_path,
                "partial_value": verdict.partial_value,
            },
        }
    return {
        "assertion_id": assertion.id or "",
        "condition_kind": assertion.condition.kind,
        "outcome": str(verdict.outcome),
        "actual_value": reading.actual_value,
        "expected_value": assertion.condition.expected_value,
        "failure": failure,
    }


def _verdict(assertion: EvalAssertion, reading: AssertionReading) -> Verdict:
    outcome = reading.verdict.outcome
    return Verdict(
        outcome,
        1.0 if outcome is Outcome.PASSED else 0.0,
        reading.verdict.message,
        actual=shorten(json_text(reading.actual_value)),
        details={"assertion_result": assertion_result(assertion, reading)},
    )
