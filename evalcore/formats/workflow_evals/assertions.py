"""The assertion of a saved eval as a check of its case."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from evalcore.checks.saved_eval import EvalAssertion
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.mistakes.shape_lookup import adapter
from evalcore.model.assertion import Assertion

CHECK: Final = "condition"


def condition_check(assertion: EvalAssertion) -> Assertion:
    """Return the assertion as a case holds it."""
    return Assertion(
        type=assertion.condition.kind,
        check=CHECK,
        name=assertion.label or assertion.condition.kind,
        params=assertion.model_dump(mode="json", by_alias=True),
    )


def read_assertion(raw: Any, loc: Loc, problems: Problems) -> Assertion | None:
    """Return a single assertion; None, with the mistakes noted, if it has another shape.

    A condition that can never be met is returned: it is blocked when it is evaluated.
    """
    try:
        assertion: EvalAssertion = adapter(EvalAssertion).validate_python(raw)
    except ValidationError as error:
        problems.add_invalid(error, raw, EvalAssertion, loc)
        return None
    return condition_check(assertion)
