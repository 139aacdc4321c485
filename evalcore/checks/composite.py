"""Several checks and one score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, NamedTuple

from evalcore.checks.graded import aspect, scored
from evalcore.checks.judged import llm_grader
from evalcore.checks.negation import apply_negation
from evalcore.checks.program import payload_of, run_grader
from evalcore.checks.registry import find_check
from evalcore.checks.subject import Subject
from evalcore.checks.wording import describe_error, json_text, one_line
from evalcore.model.assertion import Assertion, Outcome, Verdict, blocked, broken
from evalcore.model.exchange import SkippedError
from evalcore.model.tolerance import reaches


class Member(NamedTuple):
    """One check of a composite and what it found."""

    assertion: Assertion
    verdict: Verdict

    @property
    def met(self) -> bool:
        """Whether it passed, and what it requires of itself is there."""
        return self.verdict.outcome is Outcome.PASSED and _reaches(self)


async def composite(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Make each member's check and put their scores together as `aggregator` says.

    A member in error is an error of the whole, a blocked one blocks it: no score is made of what
    was not measured. A member's `required` that is not met fails the item.
    """
    members = []
    for fields in params["members"]:
        assertion = Assertion._make(fields)
        members.append(Member(assertion, await _checked(assertion, subject)))
    verdict = _unmeasured(members) or await _aggregated(params, members, subject)
    return _with_members(verdict, members)


async def _checked(assertion: Assertion, subject: Subject) -> Verdict:
    try:
        found = find_check(assertion.check)(assertion.params, subject)
        verdict = found if isinstance(found, Verdict) else await found
    except SkippedError:
        raise
    except Exception as error:  # noqa: BLE001 - outputs and checks come from anybody
        return broken(describe_error(error))
    return apply_negation(assertion, verdict)


def _unmeasured(members: Sequence[Member]) -> Verdict | None:
    for outcome, verdict_of in ((Outcome.ERROR, broken), (Outcome.BLOCKED, blocked)):
        for member in members:
            if member.verdict.outcome is outcome:
                return verdict_of(one_line(f"{member.assertion.name}: {member.verdict.message}"))
    return None


async def _aggregated(
    params: Mapping[str, Any], members: Sequence[Member], subject: Subject
) -> Verdict:
    aggregator: Mapping[str, Any] = params["aggregator"]
    threshold = params.get("threshold")
    aspects = [
        aspect(_said(member), member.verdict.outcome is Outcome.PASSED) for member in members
    ]
    match aggregator["type"]:
        case "code":
            return await _by_program(aggregator, members, subject, threshold)
        case "judge":
            results = json_text(_results(members))
            more = {"results": results, "EVALUATOR_RESULTS_JSON": results}
            asked = {**aggregator, "material": more, "threshold": threshold}
            return await llm_grader(asked, subject)
        case "threshold":
            share = fsum(one["passed"] for one in aspects) / len(aspects)
            least = aggregator["threshold"]
            return scored(share, least if threshold is None else threshold, aspects)
        case "minimum":
            return scored(min(one.verdict.score for one in members), threshold, aspects)
        case _:
            return scored(_mean(aggregator, members), threshold, aspects)


def _mean(aggregator: Mapping[str, Any], members: Sequence[Member]) -> float:
    """Return the weighted mean; a weight of the aggregator goes before the member's own."""
    weights = aggregator.get("weights") or {}
    weighted = [
        (member.verdict.score, float(weights.get(member.assertion.name, member.assertion.weight)))
        for member in members
    ]
    total = fsum(weight for _, weight in weighted)
    return fsum(score * weight for score, weight in weighted) / total if total else 0.0


async def _by_program(
    aggregator: Mapping[str, Any],
    members: Sequence[Member],
    subject: Subject,
    threshold: float | None,
) -> Verdict:
    payload = {**payload_of(aggregator, subject), "results": _results(members)}
    answer = await run_grader(aggregator, payload, subject)
    if isinstance(answer, Verdict):
        return answer
    return scored(answer.score, threshold, answer.aspects, message=one_line(answer.reasoning))


def _results(members: Sequence[Member]) -> dict[str, Any]:
    return {
        member.assertion.name: {
            "type": member.assertion.type,
            "score": member.verdict.score,
            "verdict": "pass" if member.met else "fail",
            "weight": member.assertion.weight,
            "message": member.verdict.message,
            "assertions": list((member.verdict.details or {}).get("assertions", ())),
        }
        for member in members
    }


def _said(member: Member) -> str:
    said = f": {member.verdict.message}" if member.verdict.message else ""
    return one_line(f"{member.assertion.name} {member.verdict.score:.4g}{said}")


def _with_members(verdict: Verdict, members: Sequence[Member]) -> Verdict:
    """Return the verdict with each member's result in its details, and what they cost."""
    details = dict(verdict.details or {})
    details["scores"] = [
        {
            "name": member.assertion.name,
            "type": member.assertion.type,
            "score": member.verdict.score,
            "weight": member.assertion.weight,
            "outcome": str(member.verdict.outcome),
            "message": member.verdict.message,
            **({"details": member.verdict.details} if member.verdict.details else {}),
        }
        for member in members
    ]
    failed = [
        member.assertion.name
        for member in members
        if (member.assertion.required is not None and not _reaches(member))
        or (member.verdict.details or {}).get("failed_required")
    ]
    measured = verdict.outcome in (Outcome.PASSED, Outcome.FAILED)
    if failed and measured:
        details["failed_required"] = failed
        message = one_line(f"required and not met: {', '.join(failed)}")
        verdict = verdict._replace(outcome=Outcome.FAILED, message=message)
    verdicts = [verdict, *(member.verdict for member in members)]
    usages = [usage for one in verdicts if (usage := (one.details or {}).get("token_usage"))]
    if usages:
        names = ("input", "output")
        sums = {name: sum(usage.get(name) or 0 for usage in usages) for name in names}
        details["token_usage"] = sums
    costs = [one.cost_usd for one in verdicts if one.cost_usd is not None]
    times = [one.latency_ms for one in verdicts if one.latency_ms is not None]
    return verdict._replace(
        details=details,
        cost_usd=fsum(costs) if costs else None,
        latency_ms=fsum(times) if times else None,
    )


def _reaches(member: Member) -> bool:
    required = member.assertion.required
    return required is None or reaches(member.verdict.score, required)
