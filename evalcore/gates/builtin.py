"""The gates that need nothing but the run's own aggregates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import fsum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import orjson
from pydantic import Field

from evalcore.gates.gate import CaseValue, Gate, SequentialRule, compared, number
from evalcore.model.run import GateOutcome, GateResult
from evalcore.model.scoring import is_below, reaches
from evalcore.model.summary import Sample, Summary
from evalcore.shapes import FUNCTION, REQUIRED, NonEmpty, OrAbsent, Share, Text, Weight, written_as
from evalcore.wording import counted

if TYPE_CHECKING:
    from evalcore.model.suite import Policy

_MAX_EXAMPLES = 3


def with_remedy(result: GateResult, sample: Sample, threshold: float) -> GateResult:
    """Return the result; a failure that is within chance says what would settle it."""
    if result.passed:
        return result
    from evalcore.statistics.intervals import remedy_of_threshold

    return replace(result, remedy=remedy_of_threshold(sample, threshold))


def _without_score(summary: Summary, policy: Policy) -> str | None:
    """Return how many cases have no score, and why; None if each has one that needs one."""
    cases, k = summary.cases - summary.score_sample.n, policy.iterations_of_score
    if cases <= 0:
        return None
    if k is not None:
        return f"{counted(cases, 'case')} with fewer than {k} iterations that count"
    return f"{counted(cases, 'case')} skipped by a limit" if summary.counts.skipped else None


class ScoreAtLeast(Gate, example="0.8", outcomes=True):
    """The run's score is at least this. Without a score the gate fails. Where a limit left cases
    out, or errors left fewer than `k` iterations of a case, a pass is inconclusive.
    """

    value_key: ClassVar[str] = "score"
    threshold: Share

    @property
    def sequential(self) -> SequentialRule:
        return SequentialRule(CaseValue.SCORE, self.threshold)

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        missing = _without_score(summary, policy)
        if summary.score is None:
            message = "no case has a score"
            if missing is None or not policy.iterations_of_score:
                return self.fails(message, threshold=self.threshold)
            return self.inconclusive(f"{message}: {missing}", threshold=self.threshold)
        passed = reaches(summary.score, self.threshold)
        failed = summary.cases - summary.passed_cases
        message = f"score {compared(summary.score, '≥' if passed else '<', self.threshold)}"
        if passed and failed:
            message += f" ({failed} of {summary.cases} cases did not pass)"
        details = {
            "score": summary.score,
            "threshold": self.threshold,
            "failed_cases": failed,
        }
        if passed and missing is not None:
            return self.inconclusive(f"{message}; {missing}", **details)
        result = self.passes_if(passed, message, details)
        return with_remedy(result, summary.score_sample, self.threshold)


class Threshold(ScoreAtLeast, example="0.8"):
    """The same as `score_at_least`. Default of workflow files, with the file's threshold."""


class PassRate(Gate, example="0.9", outcomes=True):
    """The share of cases that passed is at least this; with `per_variant` in every variant.
    Without cases the gate fails. Default of test files, with 1.0.
    """

    value_key: ClassVar[str] = "pass_rate"
    threshold: Share
    per_variant: bool = False

    @property
    def sequential(self) -> SequentialRule:
        return SequentialRule(CaseValue.PASSED, self.threshold, per_variant=self.per_variant)

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        if not summary.cases:
            return self.fails("no case was evaluated")
        rate, subject, sample = summary.pass_rate, "", summary.pass_sample
        rates: dict[str, float] = {}
        empty: list[str] = []
        if self.per_variant:
            variants = {each.variant: each for each in summary.variants}
            rates = {name: each.passed / max(each.cases, 1) for name, each in variants.items()}
            empty = [name for name, each in variants.items() if not each.cases]
            worst = min(rates, key=lambda variant: (rates[variant], variant))
            rate, sample = rates[worst], variants[worst].pass_sample
            subject = f" in variant '{worst}'"
            if worst in empty:
                subject += ", of which no case was evaluated"
        reached = reaches(rate, self.threshold)
        message = f"pass rate {compared(rate, '≥' if reached else '<', self.threshold)}{subject}"
        details: dict[str, Any] = {
            "pass_rate": rate,
            "threshold": self.threshold,
            "passed_cases": summary.passed_cases,
            "cases": summary.cases,
        }
        if rates:
            details["per_variant"] = rates
        result = self.passes_if(reached and not empty, message, details)
        return result if empty else with_remedy(result, sample, self.threshold)


class RequiredCases(Gate, example="case-1,case-2", outcomes=True):
    """Each of these cases passed in every variant. An id that the suite does not have is a
    mistake.
    """

    case_ids: Annotated[Iterable[str], written_as(NonEmpty[str])]

    def __post_init__(self) -> None:
        ids = [self.case_ids] if isinstance(self.case_ids, str) else self.case_ids
        object.__setattr__(self, "case_ids", tuple(dict.fromkeys(ids)))

    def has_failed(self, summary: Summary, policy: Policy, *, repeats: bool) -> bool:
        if repeats and not policy.each_iteration_passes:
            return False
        return any(case.was_run and case.case in self.case_ids for case in summary.required_cases)

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        ids = [case for case in self.case_ids if case not in summary.quarantined]
        if not ids:
            why = "every required case is quarantined"
            left = list(self.case_ids)
            return self.inconclusive(why, required=[], missed=[], quarantined=left)
        if not summary.variants:
            return self.fails("no case was evaluated")
        missed = [case for case in summary.required_cases if case.case in ids]
        examples = [
            f"{case.case} [{case.variant}]" + ("" if case.was_run else " was not run")
            for case in missed
        ]
        message = f"{counted(len(ids), 'required case')} passed in every variant"
        if missed:
            more = ", …" if len(missed) > _MAX_EXAMPLES else ""
            message = f"required cases did not pass: {', '.join(examples[:_MAX_EXAMPLES])}{more}"
        details: dict[str, Any] = {"required": ids, "missed": examples}
        if left_out := [case for case in self.case_ids if case in summary.quarantined]:
            message += f" ({len(left_out)} quarantined)"
            details["quarantined"] = left_out
        return self.passes_if(not missed, message, details)


class RequiredAssertions(Gate, outcomes=True):
    """Every required assertion of every completed item reaches its threshold. It is inconclusive if
    all of them are blocked or in error.
    """

    value_key: ClassVar[str] = "failures"

    def has_failed(self, summary: Summary, policy: Policy, *, repeats: bool) -> bool:
        return summary.required_failures > 0

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        missed = summary.required_failures
        examples = [
            f"{row.case} ({row.assertion}: {compared(row.score, '<', row.required)})"
            for row in summary.required_examples
        ]
        message = "every required assertion holds"
        if missed:
            below = f"{counted(missed, 'required assertion')} below threshold"
            message = f"{below}: {'; '.join(examples[:_MAX_EXAMPLES])}"
        details = {"failures": missed, "examples": examples}
        if not missed and summary.required_unmeasured:
            return self.inconclusive("each required assertion is blocked or in error", **details)
        return self.passes_if(not missed, message, details)


class Errors(Gate):
    """No item and no assertion is in error (with the policy `exclude`: no more than the allowed
    share of items). Part of every run, except with the policy `zero`.
    """

    about_errors: ClassVar[bool] = True

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        counts, asserted = summary.counts, summary.asserted_errors
        details = {"items": counts.error, "assertions": asserted, "planned": counts.planned}
        if not counts.error and not asserted:
            return self.passes_if(True, "nothing is in error", details)
        items = f"{counts.error} of {counted(counts.planned, 'item')}" if counts.error else None
        parts = [items, counted(asserted, "assertion") if asserted else None]
        verb = "is" if counts.error + asserted == 1 else "are"
        message = f"{' and '.join(filter(None, parts))} {verb} in error"
        share = counts.error / counts.planned if counts.planned else 0.0
        allowed = policy.max_error_share if policy.errors == "exclude" else None
        passed = allowed is not None and reaches(allowed, share) and not asserted
        if allowed is not None:
            message += f" (allowed share of items: {number(allowed)})"
            if policy.iterations_of_score and (missing := _without_score(summary, policy)):
                message += f"; {missing}, and no score"
        return self.passes_if(passed, message, details)


class ErrorRateUnder(Gate, example="0.05"):
    """The share of items in error is below this."""

    value_key: ClassVar[str] = "error_rate"
    about_errors: ClassVar[bool] = True
    threshold: Share

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        counts = summary.counts
        if not counts.planned:
            return self.fails("no item was planned")
        rate = counts.error / counts.planned
        passed = is_below(rate, self.threshold)
        message = f"error rate {compared(rate, '<' if passed else '≥', self.threshold)}"
        details = {"error_rate": rate, "threshold": self.threshold, "errors": counts.error}
        return self.passes_if(passed, message, details)


class _MaximumGate(Gate):
    """A gate on an amount that is strictly below a maximum."""

    threshold_key: ClassVar[str] = "max"

    def below(self, amount: str, value: float, maximum: float, unmeasured: int = 0) -> GateResult:
        """Compare; unmeasured items (fixtures cost nothing) are counted in the message only."""
        passed = is_below(value, maximum)
        message = f"{amount} {compared(value, '<' if passed else '≥', maximum)}"
        if unmeasured:
            message += f" ({unmeasured} items were not measured)"
        # Sums of integers may be beyond 64 bits, which JSON cannot hold as integers.
        written = value if abs(value) < 2**63 else float(value)
        return self.passes_if(passed, message, {"value": written, "max": maximum})

    def latency_is_unmeasured(self, summary: Summary) -> GateResult:
        """Return the failure because of items whose latency is not measured."""
        unmeasured, planned = summary.unmeasured_latency, summary.counts.planned
        return self.fails(f"latency of {unmeasured} of {planned} items was not measured")


class LatencyUnder(_MaximumGate, example="2000"):
    """Every item was measured, and the slowest took less."""

    max_ms: Annotated[Weight, Field(alias="max", description="ms")]

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        slowest = summary.slowest
        if slowest is None or summary.unmeasured_latency:
            return self.latency_is_unmeasured(summary)
        variant, case, value = slowest.variant, slowest.case, slowest.value
        passed = is_below(value, self.max_ms)
        what = f"slowest item {number(value)} ms {'<' if passed else '≥'} {number(self.max_ms)} ms"
        details = {"value": value, "max": self.max_ms, "variant": variant, "case": case}
        return self.passes_if(passed, f"{what} (variant '{variant}', case '{case}')", details)


class P95LatencyUnder(_MaximumGate, example="2000"):
    """Every item was measured, and the 95th percentile is less."""

    max_ms: Annotated[Weight, Field(alias="max", description="ms")]

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        value = summary.p95_latency_ms
        if value is None or summary.unmeasured_latency:
            return self.latency_is_unmeasured(summary)
        return self.below("p95 latency (ms)", value, self.max_ms)


class CostUnder(_MaximumGate, example="0.5"):
    """The cost was measured, and the run cost less; with `per_case`: the most expensive work item
    cost less. The costs of judges count with `include_judges`; otherwise the message names them.
    A pass is inconclusive where models without a known price answered.
    """

    max_usd: Annotated[Weight, Field(alias="max", description="USD")]
    per_case: bool = False
    include_judges: bool = False

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        value, unmeasured = summary.total_cost_usd, summary.unmeasured_cost
        judged_usd = summary.judge_cost_usd
        payer = " of targets" if judged_usd is not None else ""
        if self.include_judges:
            payer = " of targets and judges"
        amount = f"total cost{payer} (USD)"
        if self.per_case:
            extreme = summary.costliest_with_judges if self.include_judges else summary.costliest
            value = None if extreme is None else extreme.value
            if extreme is not None:
                item = f"case '{extreme.case}' in variant '{extreme.variant}'"
                amount = f"cost{payer} (USD) of {item}"
        elif self.include_judges and judged_usd is not None:
            value = fsum((value or 0.0, judged_usd))
        if value is None:
            return self.fails(f"the cost{payer} was not measured")
        result = self.below(amount, value, self.max_usd, unmeasured)
        message, outcome = result.message, result.outcome
        if judged_usd is not None and not self.include_judges:
            message += f"; {number(judged_usd)} USD of judges not counted"
        # What has no price may have cost anything; fixtures cost nothing.
        if result.passed and summary.unpriced and (unmeasured or self.include_judges):
            message += f"; no price is known for {', '.join(summary.unpriced)}"
            outcome = GateOutcome.INCONCLUSIVE
        details = {**result.details, "include_judges": self.include_judges}
        return replace(result, outcome=outcome, message=message, details=details)


class TokensUnder(_MaximumGate, example="100000"):
    """Tokens were measured, and the run used fewer."""

    max_tokens: Annotated[Weight, Field(alias="max")]

    def decide(self, summary: Summary, policy: Policy) -> GateResult:
        value = summary.total_tokens
        if value is None:
            return self.fails("tokens were not measured")
        return self.below("tokens", value, self.max_tokens, summary.unmeasured_tokens)


_EXPECTED = "return True or False, (passed, message), or {'passed' or 'outcome', 'message'}"


def _refuse(gate: CustomGate) -> Callable[..., Any]:
    raise LookupError(f"'{gate.fn}' cannot be called here")


class CustomGate(Gate, example="module:function"):
    """[Your function](#a-gate-of-your-own) returns it.

    In Python `fn` may be the function itself.
    """

    name: OrAbsent[Text] = None
    description: OrAbsent[Text] = None
    fn: Annotated[str | Callable[..., Any], FUNCTION, Field(alias="callable")] = REQUIRED

    @property
    def result_name(self) -> str:
        """Its own name, else the function's."""
        return self.name or str(self.fn)

    def call(self, functions: GateFunctions) -> GateResult:
        """Return what the function decides; an exception of it fails the gate."""
        name = self.result_name
        try:
            answer = functions.resolve(self)(functions.report())
            return _stored(_result(name, self.description, answer))
        except (Exception, SystemExit) as error:  # noqa: BLE001  (a user's function)
            message = f"{type(error).__name__}: {error}"
            raised = {"raised": type(error).__name__}
            return _stored(GateResult(name, GateOutcome.FAIL, message, raised))


@dataclass(frozen=True, slots=True)
class GateFunctions:
    """How custom gates reach their functions.

    `resolve` returns the function of a gate, or what calls it in another process; it may raise.
    `report` returns the argument of the functions: the report's JSON values without its gates.
    `stored` are results by the gates' indices: a decided run is shown without calling a function
    again.
    """

    resolve: Callable[[CustomGate], Callable[..., Any]] = _refuse
    report: Callable[[], Mapping[str, Any]] = dict
    stored: Mapping[int, GateResult] = field(default_factory=dict)


def _stored(result: GateResult) -> GateResult:
    """Return the result as a report can hold it: halves of surrogate pairs are escaped."""
    message = result.message.encode("utf-8", "backslashreplace").decode("utf-8")
    try:
        orjson.dumps(result.details)
    except TypeError as error:
        message = f"TypeError: its details are no JSON: {error}"
        return GateResult(result.name, GateOutcome.FAIL, message, {"raised": "TypeError"})
    return replace(result, message=message)


def _result(name: str, description: str | None, answer: object) -> GateResult:
    if isinstance(answer, GateResult):
        return replace(answer, name=name)
    message: object = None
    details: object = {}
    if isinstance(answer, tuple) and len(answer) == 2:
        answer, message = answer
    elif isinstance(answer, Mapping):
        message, details = answer.get("message"), answer.get("details") or {}
        answer = answer.get("outcome", answer.get("passed"))
    if isinstance(answer, bool):
        answer = GateOutcome.PASS if answer else GateOutcome.FAIL
    is_outcome = isinstance(answer, str) and answer in set(GateOutcome)
    if not is_outcome or not isinstance(details, Mapping):
        text = f"returned {type(answer).__name__} {str(answer)[:80]!r}; {_EXPECTED}"
        return GateResult(name, GateOutcome.FAIL, text, {})
    text = str(message) if message else description or f"the function says {answer}"
    return GateResult(name, GateOutcome(str(answer)), text, dict(details))
