"""Several checks and one score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import fsum
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticKnownError
from typing_extensions import TypedDict

from evalcore.checks.base import (
    AssertionValueError,
    Check,
    Reader,
    Subject,
    apply_negation,
    aspect,
    passing_score,
    scored,
)
from evalcore.checks.judged import Judge, LlmGrader
from evalcore.checks.program import payload_of, run_grader
from evalcore.checks.registry import load_check
from evalcore.model.assertion import Assertion, Outcome, Verdict, blocked, broken
from evalcore.model.exchange import SkippedError
from evalcore.model.scoring import reaches
from evalcore.shapes import Declared, OrAbsent, Share, Text, TextOrTexts, Weight, text_or_mapping
from evalcore.wording import describe_error, json_text, one_line, suggest


class Member(NamedTuple):
    """One check of a composite and its verdict."""

    assertion: Assertion
    verdict: Verdict

    @property
    def passed(self) -> bool:
        """Whether it passed."""
        return self.verdict.outcome is Outcome.PASSED

    @property
    def reaches_required(self) -> bool:
        """Whether the score is at least what the assertion requires, if it requires any."""
        required = self.assertion.required
        return required is None or reaches(self.verdict.score, required)


_AGGREGATORS: Final = {
    **{"weighted_average": "mean", "threshold": "threshold", "minimum": "minimum"},
    **{"code_grader": "code", "llm_grader": "judge"},
}
_NAMES: Final = tuple(
    dict.fromkeys(spelling for name in _AGGREGATORS for spelling in (name, name.replace("_", "-")))
)


def _aggregator_type(written: Any) -> Any:
    if written in _AGGREGATORS.values():  # as the plan stores it
        return written
    if written not in _NAMES:
        raise PydanticKnownError("literal_error", {"expected": ", ".join(_NAMES)})
    return _AGGREGATORS[written.replace("-", "_")]


class Aggregator(Declared):
    """How the members' scores become one: their mean, the least, a share, a program, a judge."""

    type: Annotated[
        Literal["mean", "threshold", "minimum", "code", "judge"],
        BeforeValidator(_aggregator_type),
        WithJsonSchema({"enum": list(_NAMES), "type": "string"}),
    ]
    weights: OrAbsent[dict[str, Weight]] = None
    threshold: OrAbsent[Share] = None
    command: OrAbsent[TextOrTexts] = None
    path: OrAbsent[Text] = None
    cwd: OrAbsent[Text] = None
    config: OrAbsent[dict[str, Any]] = None
    prompt: OrAbsent[Text] = None
    judge: OrAbsent[Text] = None
    target: OrAbsent[Text] = None
    model: OrAbsent[Text] = None


class StoredAggregator(Aggregator):
    """An aggregator as the plan stores it, with the judges that its keys mean."""

    prompt: str | None = None
    judges: list[Judge] | None = None


class Composite(Check):
    """Several checks give one score, put together by `aggregator`.

    A member in error is an error of the whole, a blocked one blocks it: no score is made of what
    was not measured. A member's `required` that is not met fails the item.
    """

    nested: ClassVar[bool] = True

    members: list[Any]
    aggregator: StoredAggregator
    threshold: OrAbsent[Share] = None

    async def check(self, subject: Subject) -> Verdict:
        """Make each member's check, then the score."""
        members = []
        for fields in self.members:
            assertion = Assertion._make(fields)
            members.append(Member(assertion, await _checked(assertion, subject)))
        verdict = _unmeasured(members) or await self._aggregated(members, subject)
        return _with_members(verdict, members)

    async def _aggregated(self, members: Sequence[Member], subject: Subject) -> Verdict:
        aggregator, threshold = self.aggregator, self.threshold
        aspects = [aspect(_member_text(member), member.passed) for member in members]
        match aggregator.type:
            case "code":
                return await self._by_program(members, subject)
            case "judge":
                results = json_text(_results(members))
                material = {"results": results, "EVALUATOR_RESULTS_JSON": results}
                judges = aggregator.judges or []
                grader = LlmGrader(judges=judges, prompt=aggregator.prompt, threshold=threshold)
                return await grader.check(subject, material)
            case "threshold":
                share = fsum(entry["passed"] for entry in aspects) / len(aspects)
                least = aggregator.threshold if threshold is None else threshold
                return scored(share, least, aspects)
            case "minimum":
                return scored(min(member.verdict.score for member in members), threshold, aspects)
            case "mean":
                return scored(_mean(aggregator.weights or {}, members), threshold, aspects)

    async def _by_program(self, members: Sequence[Member], subject: Subject) -> Verdict:
        payload = {**payload_of(self.aggregator.config, subject), "results": _results(members)}
        command, cwd = self.aggregator.command or "", self.aggregator.cwd
        answer = await run_grader(command, payload, subject, cwd=cwd)
        if isinstance(answer, Verdict):
            return answer
        message = one_line(answer.reasoning)
        return scored(answer.score, self.threshold, answer.aspects, message=message)

    @classmethod
    def read(cls, written: Mapping[str, Any], reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `composite` means."""
        keys = [key for key in _MEMBERS if key in written]
        if len(keys) != 1:
            raise AssertionValueError("a composite has its members under 'assertions'")
        members = reader.members(written[keys[0]], keys[0])
        names = [member.name for member in members]
        if any(member.check == "human" for member in members):
            raise AssertionValueError("'human' stands beside a composite, not in it")
        for name in names:
            if names.count(name) > 1:
                raise AssertionValueError(f"two members are called '{name}'; give them a 'name'")
        aggregator = _read_aggregator(written.get("aggregator", "weighted_average"), reader)
        for name in aggregator.get("weights") or ():
            if members and name not in names:
                message = f"aggregator.weights: no member is called '{name}'.{suggest(name, names)}"
                raise AssertionValueError(message)
        return "composite", {
            "members": [list(member) for member in members],
            "aggregator": aggregator,
            "threshold": passing_score(written),
        }


async def _checked(assertion: Assertion, subject: Subject) -> Verdict:
    try:
        check, thread = load_check(assertion.check, assertion.params), subject.context.thread
        verdict: Any = (
            check.check(subject)
            if thread is None
            else await thread.result(assertion.check, partial(check.check, subject))
        )
        if not isinstance(verdict, Verdict):
            verdict = await verdict
    except SkippedError:
        raise
    except Exception as error:  # noqa: BLE001 - outputs and checks are foreign
        return broken(describe_error(error))
    return apply_negation(assertion, verdict)


def _unmeasured(members: Sequence[Member]) -> Verdict | None:
    for outcome, verdict_of in ((Outcome.ERROR, broken), (Outcome.BLOCKED, blocked)):
        for member in members:
            if member.verdict.outcome is outcome:
                return verdict_of(one_line(f"{member.assertion.name}: {member.verdict.message}"))
    return None


def _mean(weights: Mapping[str, float], members: Sequence[Member]) -> float:
    """Return the weighted mean; a weight of the aggregator goes before the member's own."""
    weighted = [
        (member.verdict.score, float(weights.get(member.assertion.name, member.assertion.weight)))
        for member in members
    ]
    total = fsum(weight for _, weight in weighted)
    return fsum(score * weight for score, weight in weighted) / total if total else 0.0


def _results(members: Sequence[Member]) -> dict[str, Any]:
    """Return the results for a program or a judge."""
    return {
        member.assertion.name: {
            **_described(member),
            "verdict": "pass" if member.passed and member.reaches_required else "fail",
            "assertions": list((member.verdict.details or {}).get("assertions", ())),
        }
        for member in members
    }


def _described(member: Member) -> dict[str, Any]:
    assertion, verdict = member
    return {
        "type": assertion.type,
        "score": verdict.score,
        "weight": assertion.weight,
        "message": verdict.message,
    }


def _member_text(member: Member) -> str:
    message = f": {member.verdict.message}" if member.verdict.message else ""
    return one_line(f"{member.assertion.name} {member.verdict.score:.4g}{message}")


def _with_members(verdict: Verdict, members: Sequence[Member]) -> Verdict:
    """Return the verdict with each member's result in its details, and what they cost."""
    details = dict(verdict.details or {})
    details["scores"] = [
        {
            "name": member.assertion.name,
            **_described(member),
            "outcome": str(member.verdict.outcome),
            **({"details": member.verdict.details} if member.verdict.details else {}),
        }
        for member in members
    ]
    failed = [
        member.assertion.name
        for member in members
        if not member.reaches_required or (member.verdict.details or {}).get("failed_required")
    ]
    if failed and verdict.outcome in (Outcome.PASSED, Outcome.FAILED):
        details["failed_required"] = failed
        message = one_line(f"required and not met: {', '.join(failed)}")
        verdict = verdict._replace(outcome=Outcome.FAILED, message=message)
    verdicts = [verdict, *(member.verdict for member in members)]
    noted = [each.details for each in verdicts if each.details]
    if usages := [each["token_usage"] for each in noted if "token_usage" in each]:
        names = dict.fromkeys(("input", "output", *(name for usage in usages for name in usage)))
        details["token_usage"] = {
            name: sum(usage.get(name) or 0 for usage in usages) for name in names
        }
    if unpriced := {name for each in noted for name in each.get("unpriced", ())}:
        details["unpriced"] = sorted(unpriced)
    costs = [each.cost_usd for each in verdicts if each.cost_usd is not None]
    times = [each.latency_ms for each in verdicts if each.latency_ms is not None]
    return verdict._replace(
        details=details,
        cost_usd=fsum(costs) if costs else None,
        latency_ms=fsum(times) if times else None,
    )


AggregatorItem = Annotated[
    Annotated[Text, Tag("<text>")] | Annotated[Aggregator, Tag("<mapping>")],
    Discriminator(text_or_mapping),
]


_MEMBERS: Final = ("assertions", "assert", "evaluators", "members")
# `assert` is a keyword of Python.
_AssertKey = TypedDict(
    "_AssertKey", {"assert": Annotated[list[Any], Field(min_length=1)]}, total=False
)


class CompositeKeys(_AssertKey, total=False):
    """The keys of `composite` that are no fields; its members stand under one of four names."""

    assertions: Annotated[list[Any], Field(min_length=1)]
    evaluators: Annotated[list[Any], Field(min_length=1)]
    members: Annotated[list[Any], Field(min_length=1)]
    aggregator: AggregatorItem


def _read_aggregator(raw: Any, reader: Reader) -> dict[str, Any]:
    is_name = isinstance(raw, str)
    written = {} if is_name else raw.model_dump(exclude_unset=True)
    kind = written["type"] = _AGGREGATORS.get(raw.replace("-", "_")) if is_name else raw.type
    if kind is None:
        raise AssertionValueError(f"aggregator: unknown type '{raw}'.{suggest(raw, _NAMES)}")
    if kind == "threshold" and "threshold" not in written:
        raise AssertionValueError("aggregator 'threshold' needs 'threshold': the share that passes")
    if kind == "code":
        if ("command" in written) == ("path" in written):
            raise AssertionValueError("aggregator 'code-grader' needs 'command'")
        written["command"] = written.pop("path", written.get("command"))
    if kind == "judge":
        judges = reader.judges(written, "aggregator")
        prompt = reader.prompt(written.get("prompt", _JUDGE_PROMPT))
        return {"type": kind, "judges": judges, "prompt": prompt}
    return written


_JUDGE_PROMPT: Final = (
    "Several checks were made of an output. Decide from their results, and from the output itself, "
    "how good it is on the whole.\n\nResults: {{results}}"
)
