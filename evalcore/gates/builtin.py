"""The gates that need nothing but the run's own aggregates.

Each takes its checked parameters, the summary and the suite's policy, and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import fsum
from typing import Any

from evalcore.gates.wording import counted, number
from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.suite import ErrorPolicy, Policy
from evalcore.model.summary import Summary
from evalcore.model.tolerance import is_below, reaches

_SHOWN = 3


def threshold(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the run's score is at least `threshold`; no score fails."""
    return _score("threshold", params, summary)


def score_at_least(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the run's score is at least `threshold`; no score fails."""
    return _score("score_at_least", params, summary)


def _score(name: str, params: Mapping[str, Any], summary: Summary) -> GateResult:
    threshold = params["threshold"]
    if summary.score is None:
        return GateResult(name, GateOutcome.FAIL, "no case has a score", {"threshold": threshold})
    passed = reaches(summary.score, threshold)
    sign = "≥" if passed else "<"
    failed = summary.cases - summary.passed_cases
    details = {"score": summary.score, "threshold": threshold, "failed_cases": failed}
    message = f"score {number(summary.score)} {sign} {number(threshold)}"
    if passed and failed:
        message += f" ({failed} of {summary.cases} cases did not pass)"
    return GateResult(name, _outcome(passed), message, details)


def pass_rate(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the share of passed cases is at least `threshold`; no case at all fails.

    With `per_variant` it is asked of every variant, and one without a case fails.
    """
    threshold = params["threshold"]
    if not summary.cases:
        return GateResult("pass_rate", GateOutcome.FAIL, "no case was evaluated", {})
    rates: dict[str, float] = {}
    rate, whose = summary.pass_rate, ""
    if params["per_variant"]:
        rates = {one.variant: one.passed / max(one.cases, 1) for one in summary.variants}
        worst = min(rates, key=lambda variant: (rates[variant], variant))
        rate, whose = rates[worst], f" in variant '{worst}'"
        if not all(one.cases for one in summary.variants if one.variant == worst):
            whose += ", of which no case was evaluated"
    passed = reaches(rate, threshold) and all(one.cases for one in summary.variants if rates)
    sign = "≥" if reaches(rate, threshold) else "<"
    message = f"pass rate {number(rate)} {sign} {number(threshold)}{whose}"
    details = {
        "pass_rate": rate,
        "threshold": threshold,
        "passed_cases": summary.passed_cases,
        "cases": summary.cases,
    }
    if rates:
        details["per_variant"] = rates
    return GateResult("pass_rate", _outcome(passed), message, details)


def required_cases(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if each of `case_ids` passed in every variant; one that was not run has not."""
    ids = params["case_ids"]
    if not summary.variants:
        return GateResult("required_cases", GateOutcome.FAIL, "no case was evaluated", {})
    missed = [case for case in summary.required_cases if case.case in ids]
    examples = [
        f"{case.case} [{case.variant}]" + ("" if case.was_run else " was not run")
        for case in missed
    ]
    message = f"{counted(len(ids), 'required case')} passed in every variant"
    if missed:
        more = ", …" if len(missed) > _SHOWN else ""
        message = f"required cases did not pass: {', '.join(examples[:_SHOWN])}{more}"
    details = {"required": list(ids), "missed": examples}
    return GateResult("required_cases", _outcome(not missed), message, details)


def required_assertions(_: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if every required assertion of every completed item reaches its threshold."""
    missed = summary.required_failures
    examples = [
        f"{row.case} ({row.assertion}: {number(row.score)} < {number(row.required)})"
        for row in summary.required_examples
    ]
    message = "every required assertion holds"
    if missed:
        below = f"{counted(missed, 'required assertion')} below threshold"
        message = f"{below}: {'; '.join(examples[:3])}"
    details = {"failures": missed, "examples": examples}
    return GateResult("required_assertions", _outcome(not missed), message, details)


def errors(_: Mapping[str, Any], summary: Summary, policy: Policy) -> GateResult:
    """Pass if nothing is in error, or as much as the policy `exclude` allows."""
    counts, asserted = summary.counts, summary.asserted_errors
    details = {"items": counts.error, "assertions": asserted, "planned": counts.planned}
    if not counts.error and not asserted:
        return GateResult("errors", GateOutcome.PASS, "nothing is in error", details)
    message = f"{counts.error} of {counts.planned} items and {asserted} assertions are in error"
    share = counts.error / counts.planned if counts.planned else 0.0
    allowed = policy.max_error_share if policy.errors is ErrorPolicy.EXCLUDE else None
    passed = allowed is not None and reaches(allowed, share) and not asserted
    if allowed is not None:
        message += f" (allowed share of items: {number(allowed)})"
    return GateResult("errors", _outcome(passed), message, details)


def error_rate_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the share of items in error is strictly below `threshold`."""
    threshold, counts = params["threshold"], summary.counts
    if not counts.planned:
        return GateResult("error_rate_under", GateOutcome.FAIL, "no item was planned", {})
    rate = counts.error / counts.planned
    passed = is_below(rate, threshold)
    message = f"error rate {number(rate)} {'<' if passed else '≥'} {number(threshold)}"
    details = {"error_rate": rate, "threshold": threshold, "errors": counts.error}
    return GateResult("error_rate_under", _outcome(passed), message, details)


def latency_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if every item was measured and the slowest took strictly less than `max` ms."""
    slowest = summary.slowest
    if slowest is None or summary.unmeasured_latency:
        return _not_measured("latency_under", summary)
    passed = is_below(slowest.value, params["max"])
    message = (
        f"slowest item {number(slowest.value)} ms {'<' if passed else '≥'} "
        f"{number(params['max'])} ms (variant '{slowest.variant}', case '{slowest.case}')"
    )
    details = {"max": params["max"], "variant": slowest.variant, "case": slowest.case}
    return GateResult("latency_under", _outcome(passed), message, details)


def p95_latency_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if every item was measured and the 95th percentile is strictly less than `max` ms."""
    value = summary.p95_latency_ms
    if value is None or summary.unmeasured_latency:
        return _not_measured("p95_latency_under", summary)
    return _below("p95_latency_under", "p95 latency (ms)", value, params["max"])


def cost_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the run's cost is known and strictly less than `max` USD.

    The cost is the run's total, with `per_case` that of its most expensive work item; of the
    targets' calls, with `include_judges` of the assertions' own calls too.
    """
    include_judges = params["include_judges"]
    value, unmeasured = summary.total_cost_usd, summary.unmeasured_cost
    judged = summary.judge_cost_usd is not None
    of = " of targets and judges" if include_judges else " of targets" if judged else ""
    what = f"total cost{of} (USD)"
    if params["per_case"]:
        extreme = summary.costliest_with_judges if include_judges else summary.costliest
        value = None if extreme is None else extreme.value
        if extreme is not None:
            what = f"cost{of} (USD) of case '{extreme.case}' in variant '{extreme.variant}'"
    elif include_judges and summary.judge_cost_usd is not None:
        value = fsum((value or 0.0, summary.judge_cost_usd))
    if value is None:
        message = f"the cost{of} was not measured"
        return GateResult("cost_under", GateOutcome.FAIL, message, {})
    found = _below("cost_under", what, value, params["max"], unmeasured)
    message = found.message
    if summary.judge_cost_usd is not None and not include_judges:
        message += f"; {number(summary.judge_cost_usd)} USD of judges not counted"
    details = {**found.details, "include_judges": include_judges}
    return replace(found, message=message, details=details)


def tokens_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the run's tokens are known and strictly fewer than `max`."""
    value = summary.total_tokens
    if value is None:
        return GateResult("tokens_under", GateOutcome.FAIL, "tokens were not measured", {})
    return _below("tokens_under", "tokens", value, params["max"], summary.unmeasured_tokens)


def _below(name: str, what: str, value: float, limit: float, unmeasured: int = 0) -> GateResult:
    """Compare; given outputs cost nothing, so unmeasured items are told and not held against it."""
    passed = is_below(value, limit)
    message = f"{what} {number(value)} {'<' if passed else '≥'} {number(limit)}"
    if unmeasured:
        message += f" ({unmeasured} items were not measured)"
    return GateResult(name, _outcome(passed), message, {"max": limit})


def _not_measured(name: str, summary: Summary) -> GateResult:
    message = f"latency of {summary.unmeasured_latency} of {summary.counts.planned} items was "
    return GateResult(name, GateOutcome.FAIL, message + "not measured", {})


def _outcome(passed: bool) -> GateOutcome:
    return GateOutcome.PASS if passed else GateOutcome.FAIL
