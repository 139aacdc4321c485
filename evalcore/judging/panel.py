"""Judges that give one score or answer criteria (docs/reference/graders.md), and several votes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from math import fsum
from statistics import fmean, median
from typing import Annotated, Any, Final, NamedTuple

import orjson
from pydantic import Field, Strict

from evalcore.errors import TargetError
from evalcore.judging.asking import JudgeAnswer, JudgeQuestion, Judges, JudgeSpec
from evalcore.judging.prompts import ALIASES, SYSTEM, escape_variables, fill, variables_of
from evalcore.judging.replies import ReplyError, aspects_of, read_object, score_of, text_of
from evalcore.model.scoring import ROUNDING, reaches
from evalcore.shapes import Declared
from evalcore.wording import counted, one_line

MAX_REPAIRS = 2
_SHOWN_CHARACTERS = 120


class Panel(NamedTuple):
    """Who is asked, how often each, and how their scores become one."""

    judges: tuple[JudgeSpec, ...] = (JudgeSpec(),)
    votes: int = 1
    aggregation: str = "mean"

    @property
    def each_vote(self) -> list[JudgeSpec]:
        """The judge of each vote, each judge's together."""
        return [spec for spec in self.judges for _ in range(self.votes)]


class Vote(NamedTuple):
    """One valid answer as it was read, and every reply that led to it."""

    judge: str
    reading: Any
    answers: tuple[JudgeAnswer, ...]

    @property
    def repairs(self) -> int:
        """How many replies were not valid."""
        return len(self.answers) - 1


async def ask_until_valid(
    judges: Judges, spec: JudgeSpec, question: JudgeQuestion, read: Callable[[str], Any]
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
                count, last = (
                    counted(len(answers), "reply"),
                    one_line(answer.text, _SHOWN_CHARACTERS),
                )
                message = f"judge '{answer.judge}' gave no valid verdict in {count}"
                raise TargetError("judge", f"{message}; the last: {error}: {last!r}") from error
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


_ASPECT: Final = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "passed": {"type": "boolean"},
        "evidence": {"type": "string"},
    },
    "required": ["text", "passed", "evidence"],
    "additionalProperties": False,
}
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "assertions": {"type": "array", "items": _ASPECT},
        "reasoning": {"type": "string"},
    },
    "required": ["score", "assertions", "reasoning"],
    "additionalProperties": False,
}
DEFAULT_PROMPT: Final = (
    "Grade the output by how well it does what the criteria ask for. Where there is an expected "
    "output, it is a good answer: the output need not repeat it, but has to say what matters in it."
)
_FORMAT: Final = (
    'Answer with JSON only, in this form: {"score": a number from 0 (nothing is right) to 1 '
    '(everything is), "assertions": [{"text": what you checked, "passed": true or false, '
    '"evidence": what in the output shows it}], "reasoning": one or two sentences}'
)
# What a judge always sees of these, if there is any: by the prompt, or after it.
_ALWAYS: Final = {
    "criteria": "Criteria",
    "metadata": "Metadata",
    "input": "Input",
    "expected_output": "Expected output",
    "output": "Output",
    "tool_calls": "Tool calls, which belong to the output",
    "file_changes": "Changes of files, which belong to the output",
}


class Reading(NamedTuple):
    """A judge's verdict as it was read."""

    score: float
    reasoning: str
    aspects: Sequence[Mapping[str, Any]] = ()


class Judgement(NamedTuple):
    """What a panel came to: the score, the votes, and the digest of the prompt."""

    score: float
    votes: Sequence[Vote]
    prompt_sha256: str

    @property
    def reasoning(self) -> str:
        """Return what the judges gave as reasons, each once."""
        reasons = (vote.reading.reasoning for vote in self.votes)
        return "; ".join(dict.fromkeys(reason for reason in reasons if reason))


def question_of(
    prompt: str | None,
    material: Mapping[str, str],
    form: str = _FORMAT,
    schema: Mapping[str, Any] = SCHEMA,
) -> JudgeQuestion:
    """Return the question: the prompt with its material, what it leaves out after it, the form.

    Raise `KeyError` for a variable that has no value.
    """
    prompt = prompt or DEFAULT_PROMPT
    named = set(variables_of(prompt))
    sections = [
        f"{label}: {{{{{name}}}}}"
        for name, label in _ALWAYS.items()
        if named.isdisjoint(ALIASES[name]) and (name == "output" or material.get(name))
    ]
    template = "\n\n".join([prompt, *sections, form])
    filled = fill(template, material)
    return JudgeQuestion(SYSTEM, filled.text, schema, filled.material)


def prompt_digest(prompt: str | None, form: str = _FORMAT) -> str:
    """Return the SHA-256 (hex) of everything in a question that is not material."""
    parts = [SYSTEM, prompt or DEFAULT_PROMPT, form]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()


async def grade_freely(
    judges: Judges,
    panel: Panel,
    prompt: str | None,
    material: Mapping[str, str],
    threshold: float,
) -> Judgement:
    """Return the panel's score; raise `TargetError` if one of its judges gave none."""
    question = question_of(prompt, material)

    def read(text: str) -> Reading:
        value = read_object(text, question.material)
        score = score_of(value, 0.0, 1.0)
        return Reading(score, text_of(value, "reasoning"), aspects_of(value))

    votes = [await ask_until_valid(judges, spec, question, read) for spec in panel.each_vote]
    score = aggregate([vote.reading.score for vote in votes], panel.aggregation, threshold)
    return Judgement(score, votes, prompt_digest(prompt))


_PROMPT: Final = (
    "Check the output against each of these criteria, one by one. A criterion is met only if the "
    "output itself shows it."
)


_LISTS: Final = ("checks", "criteria", "assertions")
_VERDICTS: Final = ("satisfied", "passed", "met")
_AROUND: Final = " \t\r\n'\"`\u2018\u2019\u201c\u201d[]()"
_DEFAULT_REQUIRED: Final = 0.8
_MET: Final = 0.5
_SHOWN_NAME: Final = 60


class Criterion(Declared):
    """One criterion. `levels` (a score and what it means) make it one that is scored.

    `required` is the least share of it with which the test can pass, None if it decides nothing.
    """

    id: str
    outcome: str
    weight: float = 1.0
    required: float | None = None
    levels: list[Annotated[tuple[float, str], Strict(False)]] = Field(default_factory=list)

    @property
    def most(self) -> float:
        """The score that earns the whole weight."""
        return max(score for score, _ in self.levels)

    @property
    def threshold(self) -> float:
        """The share of its weight with which it counts as met."""
        if self.required is not None:
            return self.required
        return _DEFAULT_REQUIRED if self.levels else _MET + 2 * ROUNDING


class CriterionCheck(NamedTuple):
    """What a judge found of one criterion: the share of its weight that it earns, and why."""

    earned: float
    reasoning: str = ""


class RubricReading(NamedTuple):
    """A judge's checks by criterion; `missing` are those that it did not answer."""

    checks: Mapping[str, CriterionCheck]
    reasoning: str
    missing: tuple[str, ...] = ()


class Rubric(NamedTuple):
    """What a panel came to: the score, each criterion's share, and the required ones not met."""

    score: float
    earned: Mapping[str, float]
    failed_required: tuple[str, ...]
    votes: Sequence[Vote]
    prompt_sha256: str


async def grade_by_rubric(
    judges: Judges,
    panel: Panel,
    criteria: Sequence[Criterion],
    material: Mapping[str, str],
    prompt: str | None = None,
) -> Rubric:
    """Return the panel's score; raise `TargetError` if one of its judges gave none.

    Score = Σ earned weight / Σ weight over all criteria. One that a judge leaves out is asked for
    once more, then it counts as not met.
    """
    form, schema = _form(criteria), _schema(criteria)
    written = "\n".join([prompt or _PROMPT, "", *map(_described, criteria)])
    question = question_of(written, material, form, schema)
    votes = [await _complete_vote(judges, spec, question, criteria) for spec in panel.each_vote]
    earned = {
        criterion.id: aggregate(
            [vote.reading.checks.get(criterion.id, _NOT_MET).earned for vote in votes],
            panel.aggregation,
            criterion.threshold,
        )
        for criterion in criteria
    }
    total = fsum(criterion.weight for criterion in criteria)
    gained = fsum(earned[criterion.id] * criterion.weight for criterion in criteria)
    required = [criterion for criterion in criteria if criterion.required is not None]
    failed = tuple(each.id for each in required if not reaches(earned[each.id], each.threshold))
    return Rubric(
        gained / total if total else 0.0, earned, failed, votes, prompt_digest(written, form)
    )


_NOT_MET = CriterionCheck(0.0, "not answered by the judge")


async def _complete_vote(
    judges: Judges, spec: JudgeSpec, question: JudgeQuestion, criteria: Sequence[Criterion]
) -> Vote:
    """Return a judge's answer; what it left out is asked for once more, if a repair is left."""

    def read(text: str) -> RubricReading:
        return read_answers(text, criteria, question.material)

    vote = await ask_until_valid(judges, spec, question, read)
    reading: RubricReading = vote.reading
    if not reading.missing or vote.repairs >= MAX_REPAIRS:
        return vote
    names = ", ".join(f"'{name}'" for name in reading.missing)
    answer = await judges.ask(spec, repaired(question, f"it did not answer {names}"))
    vote = vote._replace(answers=(*vote.answers, answer))
    try:
        second = read(answer.text)
    except ReplyError:
        return vote
    checks = {**second.checks, **reading.checks}
    left = tuple(name for name in reading.missing if name not in checks)
    return vote._replace(reading=reading._replace(checks=checks, missing=left))


def read_answers(
    text: str, criteria: Sequence[Criterion], material: Sequence[str] = ()
) -> RubricReading:
    """Return the checks that a reply holds; raise `ReplyError` if it is none.

    An entry of `checks` (`criteria`, `assertions`) names its criterion by `id` (or by its outcome)
    and says `satisfied` (`passed`, `met`) or, where there are levels, a `score`. Two entries about
    the same criterion are refused. Entries about something else are left out of a reply that
    answers all criteria; in one that does not they may be answers under another name, so it is
    refused, as is one that answers none.
    """
    value = read_object(text, material)
    entries = next((value[key] for key in _LISTS if key in value), None)
    if not isinstance(entries, list):
        raise ReplyError("'checks' has to be a list, one entry for each criterion")
    by_name = {each.outcome: each for each in criteria} | {each.id: each for each in criteria}
    checks: dict[str, CriterionCheck] = {}
    others: list[str] = []
    for entry in entries:
        name = entry.get("id", entry.get("text")) if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise ReplyError("each entry of 'checks' has the 'id' of its criterion")
        criterion = by_name.get(name) or by_name.get(name.strip(_AROUND))
        if criterion is None:
            others.append(one_line(name, _SHOWN_NAME))
            continue
        if criterion.id in checks:
            raise ReplyError(f"criterion '{criterion.id}' is answered twice")
        checks[criterion.id] = _check(entry, criterion)
    missing = tuple(each.id for each in criteria if each.id not in checks)
    if missing and (others or not checks):
        fault = f"no criterion has the id {others[0]!r}" if others else "it answers no criterion"
        ids = ", ".join(f'"{each.id}"' for each in criteria)
        raise ReplyError(f"{fault}; the ids are {ids}")
    reasoning = text_of(value, "overall_reasoning") or text_of(value, "reasoning")
    return RubricReading(checks, reasoning, missing)


def _check(entry: Mapping[str, Any], criterion: Criterion) -> CriterionCheck:
    reasoning = text_of(entry, "reasoning") or text_of(entry, "evidence")
    if criterion.levels:
        score = score_of(entry, 0, criterion.most) / criterion.most
        return CriterionCheck(score, reasoning)
    verdict = next((entry[key] for key in _VERDICTS if key in entry), None)
    if not isinstance(verdict, bool):
        raise ReplyError(f"criterion '{criterion.id}' has no 'satisfied', true or false")
    return CriterionCheck(float(verdict), reasoning)


def _described(criterion: Criterion) -> str:
    lines = [f"- id {criterion.id!r}: {escape_variables(criterion.outcome)}"]
    lines.extend(
        f"    score {score:g}: {escape_variables(meaning)}" for score, meaning in criterion.levels
    )
    return "\n".join(lines)


def _form(criteria: Sequence[Criterion]) -> str:
    scored = [criterion for criterion in criteria if criterion.levels]
    parts = [] if len(scored) == len(criteria) else ['"satisfied": true or false']
    if scored:
        bounds = ", ".join(f"{criterion.id!r} 0 to {criterion.most:g}" for criterion in scored)
        parts.append(f'"score": a number for criteria with scores ({bounds})')
    return (
        'Answer with JSON only, an entry for every criterion: {"checks": [{"id": the id of the '
        f'criterion, {", ".join(parts)}, "reasoning": why}}], "overall_reasoning": one or two '
        "sentences}"
    )


def _schema(criteria: Sequence[Criterion]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "id": {"type": "string", "enum": [criterion.id for criterion in criteria]}
    }
    kinds = {bool(criterion.levels) for criterion in criteria}
    for name, kind, is_graded in (("satisfied", "boolean", False), ("score", "number", True)):
        if is_graded in kinds:
            properties[name] = {"type": kind if len(kinds) == 1 else [kind, "null"]}
    properties["reasoning"] = {"type": "string"}
    entry = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "checks": {"type": "array", "items": entry},
            "overall_reasoning": {"type": "string"},
        },
        "required": ["checks", "overall_reasoning"],
        "additionalProperties": False,
    }
