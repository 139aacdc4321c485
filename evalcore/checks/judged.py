"""Checks that ask a judge: `llm-grader`, `rubrics`, `llm_judge` (evalcore.judging)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalcore.checks.material import UnknownVariableError, material_of
from evalcore.checks.subject import Subject
from evalcore.checks.wording import one_line
from evalcore.errors import TargetError
from evalcore.judging.asking import Answer, Judges, JudgeSpec, added
from evalcore.judging.grading import Judgement, grade_freely, prompt_digest
from evalcore.judging.panel import Panel, Vote, panel_of
from evalcore.judging.rubrics import Criterion, Rubric, criteria_of, grade_by_rubric, passes
from evalcore.model.assertion import Outcome, Verdict, broken
from evalcore.model.evidence import Metrics
from evalcore.model.tolerance import reaches

DEFAULT_THRESHOLD = 0.8


class _Metered:
    """The judges, and what their answers took; also those of a check that came to no verdict."""

    def __init__(self, judges: Judges) -> None:
        self._judges = judges
        self.metrics: list[Metrics] = []

    async def ask(self, spec: JudgeSpec, question: Any) -> Answer:
        answer = await self._judges.ask(spec, question)
        self.metrics.append(answer.metrics)
        return answer

    async def embed(self, spec: JudgeSpec, texts: Sequence[str]) -> Any:
        found = await self._judges.embed(spec, texts)
        self.metrics.append(found.metrics)
        return found

    def trusted(self, spec: JudgeSpec, prompt_sha256: str) -> bool:
        return self._judges.trusted(spec, prompt_sha256)

    def on(self, verdict: Verdict) -> Verdict:
        """Return the verdict with what the calls took."""
        if not self.metrics:
            return verdict
        total = added(self.metrics)
        usage = {"input": total.input_tokens, "output": total.output_tokens}
        details = {**(verdict.details or {}), "judge_calls": len(self.metrics)}
        if any(count is not None for count in usage.values()):
            details["token_usage"] = usage
        return verdict._replace(
            details=details, latency_ms=total.latency_ms, cost_usd=total.cost_usd
        )


async def llm_grader(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Ask the judges for a score in [0, 1]; passes from `threshold` on.

    A judge that gives no valid answer, or none at all, is an error, never a score.
    """
    judges, panel = _Metered(subject.context.judges), panel_of(params)
    threshold = _threshold(params)
    try:
        material = material_of(subject, params.get("prompt"), params.get("material"))
        found = await grade_freely(judges, panel, params.get("prompt"), material, threshold)
    except (TargetError, UnknownVariableError) as error:
        return judges.on(_no_verdict(params, panel, str(error)))
    reached = reaches(found.score, threshold)
    message = _message(found.score, threshold, found.reasoning, reached=reached)
    verdict = Verdict(
        Outcome.PASSED if reached else Outcome.FAILED,
        found.score,
        message,
        expected=_expected(params, threshold),
        details=_details_of(found),
    )
    return judges.on(_advisory_or_not(verdict, judges, panel, found.prompt_sha256))


async def rubrics(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Ask the judges for every criterion in one call; score = Σ earned weight / Σ weight.

    Passes from `threshold` on, unless a required criterion is not met: then the item fails.
    """
    judges, panel = _Metered(subject.context.judges), panel_of(params)
    criteria, threshold = criteria_of(params), _threshold(params)
    try:
        material = material_of(subject, params.get("prompt"), params.get("material"))
        found = await grade_by_rubric(judges, panel, criteria, material, params.get("prompt"))
    except (TargetError, UnknownVariableError) as error:
        return judges.on(_no_verdict(params, panel, str(error)))
    reached = reaches(found.score, threshold) and not found.failed_required
    verdict = Verdict(
        Outcome.PASSED if reached else Outcome.FAILED,
        found.score,
        _rubric_message(found, criteria, threshold, reached=reached),
        expected=f"≥ {threshold:g}",
        details=_rubric_details(found, criteria),
    )
    return judges.on(_advisory_or_not(verdict, judges, panel, found.prompt_sha256))


def _threshold(params: Mapping[str, Any]) -> float:
    threshold = params.get("threshold")
    return DEFAULT_THRESHOLD if threshold is None else float(threshold)


def _no_verdict(params: Mapping[str, Any], panel: Panel, message: str) -> Verdict:
    digest = prompt_digest(params.get("prompt"))
    details = {"prompt_sha256": digest, "judges": [spec.name for spec in panel.judges]}
    expected = f"≥ {_threshold(params):g}"
    return broken(message)._replace(expected=expected, details=details)


def _advisory_or_not(
    verdict: Verdict, judges: _Metered, panel: Panel, prompt_sha256: str
) -> Verdict:
    """Return the verdict; one of a judge that may not decide is marked so."""
    if all(judges.trusted(spec, prompt_sha256) for spec in panel.judges):
        return verdict
    note = "reported only: the judge is not calibrated for this prompt"
    message = f"{note}; {verdict.message}" if verdict.message else note
    return verdict._replace(message=message, details={**(verdict.details or {}), "advisory": True})


def _expected(params: Mapping[str, Any], threshold: float) -> str:
    prompt = params.get("prompt")
    return f"≥ {threshold:g}" if prompt is None else f"≥ {threshold:g}: {one_line(prompt)}"


def _message(score: float, threshold: float, reasoning: str, *, reached: bool) -> str:
    sign = "≥" if reached else "<"
    said = f": {reasoning}" if reasoning else ""
    return one_line(f"the judge gave {score:.4g} {sign} {threshold:g}{said}")


def _details_of(found: Judgement) -> dict[str, Any]:
    aspects = [dict(aspect) for vote in found.votes for aspect in vote.reading.aspects]
    details: dict[str, Any] = {"prompt_sha256": found.prompt_sha256}
    if found.reasoning:
        details["reasoning"] = found.reasoning
    if aspects:
        details["assertions"] = aspects
    details["votes"] = [{**_voter(vote), "score": vote.reading.score} for vote in found.votes]
    return details


def _voter(vote: Vote) -> dict[str, Any]:
    voter: dict[str, Any] = {"judge": vote.judge}
    if model := vote.answers[-1].model:
        voter["model"] = model
    if vote.repairs:
        voter["repairs"] = vote.repairs
    return voter


def _rubric_message(
    found: Rubric, criteria: Sequence[Criterion], threshold: float, *, reached: bool
) -> str:
    unmet = [one.id for one in criteria if not passes(one, found.earned[one.id])]
    sign = "≥" if reaches(found.score, threshold) else "<"
    parts = [f"{found.score:.4g} {sign} {threshold:g}"]
    if found.failed_required:
        parts.append(f"required and not met: {', '.join(found.failed_required)}")
    elif unmet and not reached:
        parts.append(f"not met: {', '.join(unmet)}")
    return one_line("; ".join(parts))


def _rubric_details(found: Rubric, criteria: Sequence[Criterion]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "prompt_sha256": found.prompt_sha256,
        "assertions": [
            {
                "id": one.id,
                "text": one.outcome,
                "passed": passes(one, found.earned[one.id]),
                "score": found.earned[one.id],
                "weight": one.weight,
                "evidence": _reason(found, one.id),
            }
            for one in criteria
        ],
        "votes": [
            {
                **_voter(vote),
                "checks": {name: check.earned for name, check in vote.reading.checks.items()},
                "missing": list(vote.reading.missing),
            }
            for vote in found.votes
        ],
    }
    reasons = dict.fromkeys(vote.reading.reasoning for vote in found.votes)
    if any(reasons):
        details["reasoning"] = "; ".join(reason for reason in reasons if reason)
    if found.failed_required:
        details["failed_required"] = list(found.failed_required)
    return details


def _reason(found: Rubric, criterion: str) -> str:
    reasons = []
    for vote in found.votes:
        check = vote.reading.checks.get(criterion)
        reasons.append("not answered by the judge" if check is None else check.reasoning)
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
