"""What people are asked about saved evals; the service's evals have no such questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalcore.formats.section import only_read, read_question
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.problems import Problems
from evalcore.model.assertion import Assertion


def eval_questions(
    written: Sequence[Mapping[str, Any]], loc: Loc, problems: Problems
) -> tuple[Assertion, ...]:
    """Return the questions of a list `human`, which stands at `loc`; mistakes are noted."""
    questions = []
    for index, each in enumerate(written):
        judged = {"handle": dict(each["target"])} if "target" in each else {}
        questions.append(read_question(each, (*loc, index), problems, judged))
    return only_read(questions)
