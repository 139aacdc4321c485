"""One judge or several, one vote or several: valid answers, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeAnswer, JudgeQuestion, Judges, JudgeSpec
from evalcore.judging.replies import ReplyError
from evalcore.model.scoring import reaches
from evalcore.wording import counted, one_line

MAX_REPAIRS = 2
_SHOWN_CHARACTERS = 120

Reading = TypeVar("Reading")


class Panel(NamedTuple):
    """Who is asked, how often each, and how their scores become one."""

    judges: tuple[JudgeSpec, ...] = (JudgeSpec(),)
    votes: int = 1
    aggregation: str = "mean"


class Vote(NamedTuple):
    """One valid answer as it was read, and every reply that led to it."""

    judge: str
    reading: Any
    answers: tuple[JudgeAnswer, ...]

    @property
    def repairs(self) -> int:
        """How many replies were not valid."""
        return len(self.answers) - 1


async def ask_panel(
    judges: Judges, panel: Panel, question: JudgeQuestion, read: Callable[[str], Any]
) -> list[Vote]:
    """Return the votes, each judge's together; raise `TargetError` if one gave no valid answer."""
    return [
        await ask_until_valid(judges, spec, question, read)
        for spec in panel.judges
        for _ in range(panel.votes)
    ]


async def ask_until_valid(
    judges: Judges, spec: JudgeSpec, question: JudgeQuestion, read: Callable[[str], Reading]
) -> Vote:
    """Return the first valid answer, after at most two repairs; raise `TargetError` without one.

    `read` raises `ReplyError` for what is no answer. A repair asks the same again and says what
    was wrong, not what was said: a reply may repeat what the judged text put into it.
    """
    answers: list[JudgeAnswer] = []
    next_question = question
    while True:
        answer = await judges.ask(spec, next_question)
        answers.append(answer)
        try:
            return Vote(answer.judge, read(answer.text), tuple(answers))
        except ReplyError as error:
            if len(answers) > MAX_REPAIRS:
                raise _no_answer(answers, error) from error
            next_question = repaired(question, str(error))


def repaired(question: JudgeQuestion, reason: str) -> JudgeQuestion:
    """Return the question asked again, with the reason why the reply could not be used."""
    note = f"Your reply to this was not valid: {reason}. Answer with the JSON object only."
    return question._replace(user=f"{question.user}\n\n{note}")


def aggregate(scores: Sequence[float], aggregation: str, threshold: float) -> float:
    """Return one score of several; a majority is 1 if more than half reach the threshold."""
    if len(scores) == 1:
        return scores[0]
    if aggregation == "median":
        return float(median(scores))
    if aggregation == "majority":
        reached = sum(reaches(score, threshold) for score in scores)
        return 1.0 if reached * 2 > len(scores) else 0.0
    return fmean(scores)


def _no_answer(answers: Sequence[JudgeAnswer], error: ReplyError) -> TargetError:
    last = answers[-1]
    excerpt = one_line(last.text, _SHOWN_CHARACTERS)
    message = f"judge '{last.judge}' gave no valid verdict in {counted(len(answers), 'reply')}"
    return TargetError("judge", f"{message}; the last: {error}: {excerpt!r}")
