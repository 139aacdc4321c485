"""What people are asked about saved evals; the service's evals have no such questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from evalcore.formats.parts.human_questions import only_read, read_question
from evalcore.formats.workflow_evals.shapes import OwnSection
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.model.assertion import Assertion

SECTION: Final = "evalcore"


def eval_questions(
    written: Sequence[Mapping[str, Any]], loc: Loc, problems: Problems
) -> tuple[Assertion, ...]:
    """Return the questions of a list `human`, which stands at `loc`; mistakes are noted."""
    questions = []
    for index, each in enumerate(written):
        judged = {"handle": dict(each["target"])} if "target" in each else {}
        questions.append(read_question(each, (*loc, index), problems, judged))
    return only_read(questions)


def without_section(written: Any) -> Any:
    """Return an eval of a file as the service knows it: without its section `evalcore:`."""
    if not isinstance(written, Mapping) or SECTION not in written:
        return written
    return {key: value for key, value in written.items() if key != SECTION}


def own_questions(written: Any, loc: Loc, problems: Problems) -> tuple[Assertion, ...]:
    """Return the questions of one eval; mistakes are noted."""
    if not isinstance(written, Mapping) or SECTION not in written:
        return ()
    loc = (*loc, SECTION)
    section = problems.sound_part(written[SECTION], OwnSection, loc)
    return eval_questions(section.get("human", ()), (*loc, "human"), problems)
