"""What people judge where it is not the output: a variable of a test, a handle of a block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.checks.subject import Subject
from evalcore.mistakes.foreign_text import json_text
from evalcore.model.annotation import JUDGED_VALUES
from evalcore.model.assertion import Outcome, Verdict, broken


def judged_variable(subject: Subject, expression: str) -> str | Verdict:
    """Return the text of the expression after the test's statements, or that it has none."""
    values = subject.evidence.details.get(JUDGED_VALUES) or {}
    value = values.get(expression)
    if value is None:
        return broken(f"'{expression}' was not evaluated in this run; execute the suite again")
    if "text" not in value:
        return broken(f"'{expression}': {value.get('error')}")
    return str(value["text"])


def judged_handle(subject: Subject, target: Mapping[str, Any]) -> str | Verdict:
    """Return what stands at an output handle of a block, or why nothing does (blocked)."""
    from evalcore.checks.conditions.check import block_handles
    from evalcore.checks.conditions.eval_assertion import AssertionTarget, addressed_value
    from evalcore.checks.conditions.verdict import ConditionVerdict

    handles = block_handles(subject.evidence)
    value = addressed_value(AssertionTarget.model_validate(dict(target)), handles)
    if isinstance(value, ConditionVerdict):
        return Verdict(Outcome.BLOCKED, 0.0, value.message)
    return value.value if isinstance(value.value, str) else json_text(value.value)
