"""Questions for people: the list `human` in the section `evalcore:` of a file or of a case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.checks.base import AssertionValueError
from evalcore.checks.human import Human, HumanKeys
from evalcore.model.assertion import Assertion
from evalcore.problems import Problems
from evalcore.shapes import Text, Weight
from evalcore.wording import Loc

CHECK = "human"


SECTION: Final = "evalcore"


class QuestionKeys(HumanKeys, total=False):
    """The keys of a question; each format adds what says which value people judge."""

    name: Text
    weight: Weight


def read_question(
    written: Mapping[str, Any],
    loc: Loc,
    problems: Problems,
    judged: Mapping[str, Any],
    *,
    weight: float = 1.0,
    required: bool = False,
) -> Assertion | None:
    """Return the assertion of a question that has the right shape; None, noted, if it is wrong.

    `judged` are the fields of the check that say what people judge. `weight` and `required` hold
    where the question does not say them.
    """
    try:
        fields = Human.stored_fields(written)
    except AssertionValueError as error:
        problems.add((*loc, *error.loc), str(error))
        return None
    return Assertion(
        type=CHECK,
        check=CHECK,
        name=written.get("name", CHECK),
        params={**fields, **judged},
        weight=float(written.get("weight", weight)),
        required=Human.required_score({"required": required, **written}),
    )


def split_section(
    written: Any, shape: Any, loc: Loc, problems: Problems
) -> tuple[Any, list[Mapping[str, Any]]]:
    """Return a case of a file without its section `evalcore:`, and the questions in that.

    `shape` is that of the section; mistakes in it are noted.
    """
    if not isinstance(written, Mapping) or SECTION not in written:
        return written, []
    section = problems.sound_part(written[SECTION], shape, (*loc, SECTION))
    rest = {key: value for key, value in written.items() if key != SECTION}
    return rest, section.get("human", [])
