"""Checks that ask a judge: `llm-grader`, `rubrics`, `llm_judge` (evalcore.judging)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Required

from pydantic import Field, with_config
from typing_extensions import TypedDict

from evalcore.checks.base import STRICT, AssertionValueError, Reader
from evalcore.checks.criteria import Criteria, StoredCriterion, read_criteria
from evalcore.checks.judge import Aggregation, JudgedCheck, JudgeKeys, Votes, read_judged
from evalcore.checks.material import UnknownVariableError, material_of
from evalcore.checks.metered_judges import MeteredJudges
from evalcore.checks.prompt_program import PromptProgram, PromptValue, read_prompt
from evalcore.checks.scale import Bounds
from evalcore.checks.subject import Subject
from evalcore.declared.types import Share, Text
from evalcore.errors import TargetError
from evalcore.judging.panel import Panel, Vote
from evalcore.judging.rubrics import (
    DEFAULT_PROMPT,
    Criterion,
    Judgement,
    Rubric,
    grade_by_rubric,
    grade_freely,
    passes,
    prompt_digest,
)
from evalcore.mistakes.foreign_text import one_line
from evalcore.mistakes.locations import Loc
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.tolerance import reaches

DEFAULT_THRESHOLD = 0.8


class LlmGrader(JudgedCheck):
    """The judges give a score in [0, 1] of at least `threshold` (0.8).

    A judge that gives no valid answer, or none at all, is an error, never a score.
    """

    omitted: ClassVar[frozenset[str]] = frozenset({"prompt_program"})

    prompt_program: PromptProgram | None = None

    def check(self, subject: Subject) -> Awaitable[Verdict]:
        """Ask the judges; the score is graded."""
        return self.check_with(subject, {})

    async def check_with(self, subject: Subject, material: Mapping[str, str]) -> Verdict:
        """Ask the judges, who also see these texts, by the names of the prompt's variables."""
        if self.prompt_program is not None:
            prompt = await self.prompt_program.prompt_for(subject)
            if isinstance(prompt, Verdict):
                return prompt
            written = replace(self, prompt=prompt, prompt_program=None)
            return await written.check_with(subject, material)
        judges, panel, threshold = (
            MeteredJudges(subject.context.judges),
            self.panel,
            _threshold(self),
        )
        try:
            texts = material_of(subject, self.prompt, material)
            judgement = await grade_freely(judges, panel, self.prompt, texts, threshold)
        except (TargetError, UnknownVariableError) as error:
            return judges.on(_no_verdict(self, str(error)))
        reached = reaches(judgement.score, threshold)
        message = _message(judgement.score, threshold, judgement.reasoning, reached=reached)
        prompt = "" if self.prompt is None else f": {one_line(self.prompt)}"
        verdict = Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            judgement.score,
            message,
            expected=f"≥ {threshold:g}{prompt}",
            details=_judgement_details(judgement),
        )
        return judges.on(_advisory_or_not(verdict, judges, panel, judgement.prompt_sha256))

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `llm-grader` means."""
        prompt = read_prompt(written.get("prompt"), reader, written.get("config"))
        fields = {**read_judged(written, reader), **prompt}
        if "rubrics" in written:
            if "prompt_program" in fields:
                raise AssertionValueError("'rubrics' are asked by a prompt that is a text")
            return "rubrics", {**fields, "criteria": read_criteria(written["rubrics"])}
        return "llm-grader", fields

    @classmethod
    def idle_keys(cls, written: Mapping[str, Any]) -> Iterator[tuple[Loc, str]]:
        """Return `max_steps` of agents, `preprocessors` of files, `config` without a program."""
        if "config" in written and not isinstance(written.get("prompt"), Mapping):
            yield ("config",), "it is read by a program that writes the prompt"
        if "max_steps" in written:
            yield ("max_steps",), "a judge answers in one step"
        if "preprocessors" in written:
            yield ("preprocessors",), "what a target answers is text, never a file"

    @classmethod
    def read_judge(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `llm_judge` means.

        What is judged by stands in `config.rubric` (`criteria`, `value`): a text, the path of one,
        or a list of criteria.
        """
        config = reader.validate(LlmJudgeConfig, written.get("config") or {}, "config")
        own = {key: written[key] for key in ("criteria", "min_score") if key in written}
        keys = {**config, **own, "value": written.get("value")}
        names = [key for key in ("rubric", "criteria", "value") if keys.get(key) is not None]
        if len(names) > 1:
            raise AssertionValueError(f"'{names[0]}' and '{names[1]}' mean the same; keep one")
        if not names and not keys.get("prompt"):
            raise AssertionValueError("needs a rubric: what a good output does (`config.rubric`)")
        rubric = keys[names[0]] if names else None
        threshold = written.get("threshold")
        fields = {
            **read_judged(
                {**keys, "threshold": threshold} if threshold is not None else keys, reader
            ),
            "prompt": reader.prompt(keys.get("prompt")),
        }
        if isinstance(rubric, list):
            criteria = reader.validate(Criteria, rubric, *_rubric_place(names[0], written))
            return "rubrics", {**fields, "criteria": read_criteria(criteria)}
        if rubric is not None and (not isinstance(rubric, str) or not rubric.strip()):
            raise AssertionValueError(f"the rubric is a text or a list of criteria, not {rubric!r}")
        text = reader.prompt(rubric)
        if text is not None:
            fields["prompt"] = f"{fields['prompt'] or DEFAULT_PROMPT}\n\nCriteria:\n{text}"
        return "llm-grader", fields


class Rubrics(JudgedCheck):
    """The judges answer every criterion in one call; score = Σ earned weight / Σ weight.

    Passes from `threshold` (0.8) on, unless a required criterion is not met: then the item fails.
    """

    criteria: list[StoredCriterion]

    @classmethod
    def accepted(cls, stored: Mapping[str, Any]) -> Bounds | None:
        """Return the scores that pass; None if a required criterion decides beside them."""
        requires = any(each.get("required") is not None for each in stored["criteria"])
        return None if requires else super().accepted(stored)

    async def check(self, subject: Subject) -> Verdict:
        """Ask the judges; the score is graded."""
        judges, panel, threshold = (
            MeteredJudges(subject.context.judges),
            self.panel,
            _threshold(self),
        )
        criteria = [
            Criterion(each.id, each.outcome, each.weight, each.required, tuple(each.levels))
            for each in self.criteria
        ]
        try:
            texts = material_of(subject, self.prompt)
            rubric = await grade_by_rubric(judges, panel, criteria, texts, self.prompt)
        except (TargetError, UnknownVariableError) as error:
            return judges.on(_no_verdict(self, str(error)))
        reached = reaches(rubric.score, threshold) and not rubric.failed_required
        verdict = Verdict(
            Outcome.PASSED if reached else Outcome.FAILED,
            rubric.score,
            _rubric_message(rubric, criteria, threshold, reached=reached),
            expected=f"≥ {threshold:g}",
            details=_rubric_details(rubric, criteria),
        )
        return judges.on(_advisory_or_not(verdict, judges, panel, rubric.prompt_sha256))

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `rubrics` means."""
        fields = {**read_judged(written, reader), "prompt": reader.prompt(written.get("prompt"))}
        return "rubrics", {**fields, "criteria": read_criteria(written["criteria"])}


class LlmGraderKeys(JudgeKeys, total=False):
    """The keys of `llm-grader` that are no fields; with `rubrics` each criterion is answered."""

    prompt: PromptValue
    config: dict[str, Any]
    preprocessors: list[Any]
    rubrics: Criteria
    max_steps: Annotated[int, Field(ge=1)]


class RubricsKeys(JudgeKeys, total=False):
    """The keys of `rubrics` that are no fields, or have another type."""

    prompt: Text
    criteria: Required[Criteria]


class SuiteJudgeKeys(TypedDict, total=False):
    """The keys of `llm_judge` in suite files that are no fields."""

    path: Text
    criteria: Text
    min_score: Share
    config: dict[str, Any] | None
    value: Any


@with_config(STRICT)
class LlmJudgeConfig(JudgeKeys, total=False):
    """The keys in the `config` of `llm_judge`."""

    votes: Votes
    aggregation: Aggregation
    threshold: Share
    rubric: Any
    criteria: Any
    prompt: Text
    min_score: Share
    judges: Any  # judges of their own as well: {provider, model, …}
    judge: Any
    target: Any


def _rubric_place(name: str, written: Mapping[str, Any]) -> tuple[str, ...]:
    return (name,) if name == "value" or name in written else ("config", name)


def _threshold(check: JudgedCheck) -> float:
    return DEFAULT_THRESHOLD if check.threshold is None else check.threshold


def _no_verdict(check: JudgedCheck, message: str) -> Verdict:
    judges = [spec.name for spec in check.panel.judges]
    details = {"prompt_sha256": prompt_digest(check.prompt), "judges": judges}
    return broken(message)._replace(expected=f"≥ {_threshold(check):g}", details=details)


def _advisory_or_not(
    verdict: Verdict, judges: MeteredJudges, panel: Panel, prompt_sha256: str
) -> Verdict:
    """Return the verdict; one of a judge that may not decide is marked so."""
    if all(judges.trusted(spec, prompt_sha256) for spec in panel.judges):
        return verdict
    note = "reported only: the judge is not calibrated for this prompt"
    message = f"{note}; {verdict.message}" if verdict.message else note
    return verdict._replace(message=message, details={**(verdict.details or {}), "advisory": True})


def _message(score: float, threshold: float, reasoning: str, *, reached: bool) -> str:
    sign = "≥" if reached else "<"
    reason = f": {reasoning}" if reasoning else ""
    return one_line(f"the judge gave {score:.4g} {sign} {threshold:g}{reason}")


def _judgement_details(judgement: Judgement) -> dict[str, Any]:
    aspects = [dict(aspect) for vote in judgement.votes for aspect in vote.reading.aspects]
    details: dict[str, Any] = {"prompt_sha256": judgement.prompt_sha256}
    if judgement.reasoning:
        details["reasoning"] = judgement.reasoning
    if aspects:
        details["assertions"] = aspects
    details["votes"] = [{**_voter(vote), "score": vote.reading.score} for vote in judgement.votes]
    return details


def _voter(vote: Vote) -> dict[str, Any]:
    voter: dict[str, Any] = {"judge": vote.judge}
    if model := vote.answers[-1].model:
        voter["model"] = model
    if vote.repairs:
        voter["repairs"] = vote.repairs
    return voter


def _rubric_message(
    rubric: Rubric, criteria: Sequence[Criterion], threshold: float, *, reached: bool
) -> str:
    unmet = [
        criterion.id for criterion in criteria if not passes(criterion, rubric.earned[criterion.id])
    ]
    sign = "≥" if reaches(rubric.score, threshold) else "<"
    parts = [f"{rubric.score:.4g} {sign} {threshold:g}"]
    if rubric.failed_required:
        parts.append(f"required and not met: {_with_reasons(rubric, rubric.failed_required)}")
    elif unmet and not reached:
        parts.append(f"not met: {_with_reasons(rubric, unmet)}")
    return one_line("; ".join(parts))


def _with_reasons(rubric: Rubric, criteria: Sequence[str]) -> str:
    """Return the ids of criteria, each with what the judges say of it."""
    reasons = ((name, _reason(rubric, name)) for name in criteria)
    return ", ".join(f"{name} ({reason})" if reason else name for name, reason in reasons)


def _rubric_details(rubric: Rubric, criteria: Sequence[Criterion]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "prompt_sha256": rubric.prompt_sha256,
        "assertions": [
            {
                "id": criterion.id,
                "text": criterion.outcome,
                "passed": passes(criterion, rubric.earned[criterion.id]),
                "score": rubric.earned[criterion.id],
                "weight": criterion.weight,
                "evidence": _reason(rubric, criterion.id),
            }
            for criterion in criteria
        ],
        "votes": [
            {
                **_voter(vote),
                "checks": {name: check.earned for name, check in vote.reading.checks.items()},
                "missing": list(vote.reading.missing),
            }
            for vote in rubric.votes
        ],
    }
    reasons = dict.fromkeys(vote.reading.reasoning for vote in rubric.votes)
    if any(reasons):
        details["reasoning"] = "; ".join(reason for reason in reasons if reason)
    if rubric.failed_required:
        details["failed_required"] = list(rubric.failed_required)
    return details


def _reason(rubric: Rubric, criterion_id: str) -> str:
    reasons = []
    for vote in rubric.votes:
        check = vote.reading.checks.get(criterion_id)
        reasons.append("not answered by the judge" if check is None else check.reasoning)
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
