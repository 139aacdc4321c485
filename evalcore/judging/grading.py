"""The judge that gives one score (`llm-grader`, `llm_judge`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from evalcore.judging.asking import JudgeQuestion, Judges
from evalcore.judging.fences import SYSTEM, fill, variables_of
from evalcore.judging.panel import Panel, Vote, aggregate, ask_panel
from evalcore.judging.prompt_variables import ALIASES
from evalcore.judging.replies import aspects_of, read_object, score_of, text_of

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


def read_reply(text: str, material: Sequence[str] = ()) -> Reading:
    """Return the verdict that a reply is; raise `ReplyError` if it is none."""
    value = read_object(text, material)
    score = score_of(value, 0.0, 1.0)
    return Reading(score, text_of(value, "reasoning"), aspects_of(value))


def question_of(prompt: str | None, material: Mapping[str, str]) -> JudgeQuestion:
    """Return the question: the prompt with its material, what it leaves out after it, the form.

    Raise `KeyError` for a variable that has no value.
    """
    return complete_question(prompt or DEFAULT_PROMPT, material, _FORMAT, SCHEMA)


def complete_question(
    prompt: str, material: Mapping[str, str], form: str, schema: Mapping[str, Any]
) -> JudgeQuestion:
    """Return the question with the given form of its answer."""
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
    votes = await ask_panel(
        judges, panel, question, lambda text: read_reply(text, question.material)
    )
    scores = [vote.reading.score for vote in votes]
    score = aggregate(scores, panel.aggregation, threshold)
    return Judgement(score, votes, prompt_digest(prompt))
