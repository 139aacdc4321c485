"""The assertion of a saved eval as a check of its case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, ValidationError, with_config
from typing_extensions import TypedDict

from evalcore.checks.conditions import BLOCK_ERROR, HANDLE_OUTPUTS, EvalAssertion, Handle
from evalcore.formats.section import STRICT
from evalcore.model.assertion import Assertion
from evalcore.model.evidence import Evidence
from evalcore.problems import Problems
from evalcore.shapes import adapter
from evalcore.wording import Loc

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


@with_config(STRICT)
class BlockOutputs(TypedDict, total=False):
    """The output handles of a block, or why it has none."""

    handle_outputs: dict[Annotated[str, Field(min_length=1)], Handle] | None
    block_error: str | None


def block_evidence(question: Mapping[str, Any]) -> Evidence:
    """Return the evidence of a question's block. Raises `LoadError` for handles of another shape.

    Keys of the question that say nothing of the block are not looked at.
    """
    keys = BlockOutputs.__optional_keys__
    written = {key: value for key, value in question.items() if key in keys}
    problems = Problems("question", lambda _: None)
    problems.check_shape(written, BlockOutputs)
    problems.raise_if_any()
    details = {
        HANDLE_OUTPUTS: written.get("handle_outputs") or {},
        BLOCK_ERROR: written.get("block_error"),
    }
    return Evidence("", details=details)
