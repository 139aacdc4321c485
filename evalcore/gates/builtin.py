"""The gates that need nothing but the run's own aggregates.

Each takes its checked parameters, the summary and the suite's policy, and never raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.model.gate import GateOutcome, GateResult
from evalcore.model.suite import ErrorPolicy, Policy
from evalcore.model.summary import Summary

_EPSILON = 1e-9  # a mean of decimal fractions may fall short of its decimal threshold by an ulp


def reaches(value: float, threshold: float) -> bool:
    """Whether a computed score is at least the threshold, up to rounding of the computation."""
    return value >= threshold - _EPSILON


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
    message = f"score {_number(summary.score)} {sign} {_number(threshold)}"
    if passed and failed:
        message += f" ({failed} of {summary.cases} cases did not pass)"
    return GateResult(name, _outcome(passed), message, details)


def pass_rate(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the share of passed cases is at least `threshold`; no case at all fails."""
    threshold = params["threshold"]
    if not summary.cases:
        return GateResult("pass_rate", GateOutcome.FAIL, "no case was evaluated", {})
    if params.get("per_variant"):
        rates = {row.variant: row.passed / row.cases for row in summary.variants if row.cases}
        worst = min(rates, key=lambda variant: (rates[variant], variant))
        rate, whose = rates[worst], f" in variant '{worst}'"
    else:
        rates, rate, whose = {}, summary.pass_rate, ""
    passed = reaches(rate, threshold)
    sign = "≥" if passed else "<"
    message = f"pass rate {_number(rate)} {sign} {_number(threshold)}{whose}"
    details = {
        "pass_rate": rate,
        "threshold": threshold,
        "passed_cases": summary.passed_cases,
        "cases": summary.cases,
    }
    if rates:
        details["per_variant"] = rates
    return GateResult("pass_rate", _outcome(passed), message, details)


def required_assertions(_: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if every required assertion of every completed item reaches its threshold."""
    number = summary.required_failures
    examples = [
        f"{row.case} ({row.assertion}: {_number(row.score)} < {_number(row.required)})"
        for row in summary.required_examples
    ]
    message = "every required assertion holds"
    if number:
        message = f"{number} required assertion(s) below threshold: {'; '.join(examples[:3])}"
    details = {"failures": number, "examples": examples}
    return GateResult("required_assertions", _outcome(not number), message, details)


def errors(_: Mapping[str, Any], summary: Summary, policy: Policy) -> GateResult:
    """Pass if nothing is in error, or as much as the policy `exclude` allows."""
    counts, asserted = summary.counts, summary.asserted_errors
    details = {"items": counts.error, "assertions": asserted, "planned": counts.planned}
    if not counts.error and not asserted:
        return GateResult("errors", GateOutcome.PASS, "nothing is in error", details)
    message = f"{counts.error} of {counts.planned} items and {asserted} assertions are in error"
    share = counts.error / counts.planned if counts.planned else 0.0
    allowed = policy.max_error_share if policy.errors is ErrorPolicy.EXCLUDE else None
    passed = allowed is not None and share <= allowed and not asserted
    if allowed is not None:
        message += f" (allowed share of items: {_number(allowed)})"
    return GateResult("errors", _outcome(passed), message, details)


def error_rate_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the share of items in error is strictly below `threshold`."""
    threshold, counts = params["threshold"], summary.counts
    if not counts.planned:
        return GateResult("error_rate_under", GateOutcome.FAIL, "no item was planned", {})
    rate = counts.error / counts.planned
    passed = rate < threshold
    message = f"error rate {_number(rate)} {'<' if passed else '≥'} {_number(threshold)}"
    details = {"error_rate": rate, "threshold": threshold, "errors": counts.error}
    return GateResult("error_rate_under", _outcome(passed), message, details)


def latency_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if every item was measured and the slowest took strictly less than `max` ms."""
    slowest = summary.slowest
    if slowest is None or summary.unmeasured_latency:
        return _not_measured("latency_under", summary)
    passed = slowest.value < params["max"]
    message = (
        f"slowest item {_number(slowest.value)} ms {'<' if passed else '≥'} "
        f"{_number(params['max'])} ms (variant '{slowest.variant}', case '{slowest.case}')"
    )
    return GateResult("latency_under", _outcome(passed), message, {"max": params["max"]})


def p95_latency_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if every item was measured and the 95th percentile is strictly less than `max` ms."""
    value = summary.p95_latency_ms
    if value is None or summary.unmeasured_latency:
        return _not_measured("p95_latency_under", summary)
    return _below("p95_latency_under", "p95 latency (ms)", value, params["max"])


def cost_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the run's total cost is known and strictly less than `max` USD."""
    value = summary.total_cost_usd
    if value is None:
        return GateResult("cost_under", GateOutcome.FAIL, "the cost was not measured", {})
    return _below("cost_under", "total cost (USD)", value, params["max"], summary.unmeasured_cost)


def tokens_under(params: Mapping[str, Any], summary: Summary, _policy: Policy) -> GateResult:
    """Pass if the run's tokens are known and strictly fewer than `max`."""
    value = summary.total_tokens
    if value is None:
        return GateResult("tokens_under", GateOutcome.FAIL, "tokens were not measured", {})
    return _below("tokens_under", "tokens", value, params["max"], summary.unmeasured_tokens)


def _below(name: str, what: str, value: float, limit: float, unmeasured: int = 0) -> GateResult:
    """Compare; given outputs cost nothing, so unmeasured items are told and not held against it."""
    passed = value < limit
    message = f"{what} {_number(value)} {'<' if passed else '≥'} {_number(limit)}"
    if unmeasured:
        message += f" ({unmeasured} items were not measured)"
    return GateResult(name, _outcome(passed), message, {"max": limit})


def _not_measured(name: str, summary: Summary) -> GateResult:
    message = f"latency of {summary.unmeasured_latency} of {summary.counts.planned} items was "
    return GateResult(name, GateOutcome.FAIL, message + "not measured", {})


def _outcome(passed: bool) -> GateOutcome:
    return GateOutcome.PASS if passed else GateOutcome.FAIL


def _number(value: float) -> str:
    """Return at most four decimals, more where rounding would make another number of a miss."""
    short = f"{value:.4f}".rstrip("0").rstrip(".") if value % 1 else f"{value:.0f}"
    # 0.89999 must not look like the 0.9 that it misses; 0.8889 for 8/9 misleads nobody.
    return short if len(short) == 6 or float(short) == value else f"{value:.10g}"
