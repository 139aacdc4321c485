"""What people are asked about the tests of a script suite, and which values they judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalcore.expressions.failure import ExpressionSyntaxError
from evalcore.formats.script_suite.shapes import ScriptTestSection
from evalcore.formats.section import (
    only_read,
    own_questions,
    read_question,
    without_section,
)
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.model.annotation import JUDGED_VALUES
from evalcore.model.assertion import Assertion
from evalcore.scripts.program import compile_judged


def script_questions(
    written: Sequence[Mapping[str, Any]], loc: Loc, problems: Problems
) -> tuple[Assertion, ...]:
    """Return the questions of a list `human`, which stands at `loc`; mistakes are noted.

    The score of a test is what its statements give, so a question has no weight and is required
    unless it says otherwise.
    """
    return only_read(
        [_question(each, (*loc, index), problems) for index, each in enumerate(written)]
    )


def _question(written: Mapping[str, Any], loc: Loc, problems: Problems) -> Assertion | None:
    judged = {}
    if "of" in written:
        judged["of"] = written["of"]
        try:
            compile_judged(written["of"])
        except ExpressionSyntaxError as error:
            problems.add((*loc, "of"), str(error))
    return read_question(written, loc, problems, judged, weight=0.0, required=True)


def split_test(raw: Any, loc: Loc, problems: Problems) -> tuple[Any, tuple[Assertion, ...]]:
    """Return a test without its section `evalcore:`, and the questions of the section."""
    own = own_questions(raw, ScriptTestSection, loc, problems, script_questions)
    return without_section(raw), own


def judged_metadata(questions: Sequence[Assertion]) -> dict[str, Any]:
    """Return the metadata of a case whose target evaluates what people judge.

    They are no part of the input, so that another question leaves labels as they are.
    """
    expressions = {each.params["of"] for each in questions if "of" in each.params}
    return {JUDGED_VALUES: sorted(expressions)} if expressions else {}
