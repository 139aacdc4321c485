"""The 95 % intervals of a report's rates and means: as JSON values, and short for people."""

from __future__ import annotations

from typing import Any

from evalcore.model.latency_text import latency_text
from evalcore.model.sample import Sample
from evalcore.model.summary import Summary, VariantSummary
from evalcore.report.costs import usd_text
from evalcore.statistics.intervals import (
    Estimate,
    estimate_amount,
    estimate_mean,
    estimate_rate,
    estimate_total,
)

_DIGITS = 6


def interval_entries(summary: Summary) -> dict[str, Any]:
    """Return the intervals by the name of the number, and those of each variant."""
    return {
        "pass_rate": _entry(estimate_rate(summary.pass_sample)),
        "score": _entry(estimate_mean(summary.score_sample)),
        "avg_latency_ms": _measure(summary.avg_latency_ms, summary.latency_sample),
        "avg_cost_usd": _measure(summary.avg_cost_usd, summary.cost_sample),
        "p50_latency_ms": _percentile(summary.p50_latency_ends_ms, summary.latency_sample),
        "p95_latency_ms": _percentile(summary.p95_latency_ends_ms, summary.latency_sample),
        "total_cost_usd": _total(summary.total_cost_usd, summary.cost_sample),
        "total_tokens": _total(summary.total_tokens, summary.token_sample),
        "variants": {
            variant.variant: {
                "pass_rate": _entry(estimate_rate(variant.pass_sample)),
                "score": _entry(estimate_mean(variant.score_sample)),
            }
            for variant in summary.variants
        },
    }


def _measure(mean: float | None, sample: Sample) -> dict[str, Any]:
    if mean is None:
        return _entry(Estimate(reason="nothing is measured"))
    return _entry(estimate_amount(sample._replace(mean=mean)))


def _total(total: float | None, sample: Sample) -> dict[str, Any]:
    if total is None:
        return _entry(Estimate(reason="nothing is measured"))
    return _entry(estimate_total(sample, total))


def _percentile(ends: tuple[float, float] | None, sample: Sample) -> dict[str, Any]:
    if ends is None:
        return _entry(Estimate(reason=sample.reason or "nothing is measured"))
    return _entry(Estimate(*ends, method="woodruff"))


def total_text(total: float, sample: Sample) -> str:
    """Return `95 %: 0.021–0.032`, the interval of a cost in USD; empty without one."""
    estimate = estimate_total(sample, total)
    if estimate.low is None or estimate.high is None:
        return ""
    return f"95 %: {usd_text(estimate.low)}–{usd_text(estimate.high)}"


def latency_ends_text(ends: tuple[float, float] | None) -> str:
    """Return `95 %: 1,200–1,900`, the interval of a percentile in ms; empty without one."""
    return "" if ends is None else f"95 %: {latency_text(ends[0])}–{latency_text(ends[1])}"


def _entry(estimate: Estimate) -> dict[str, Any]:
    """Return the ends with the method, or null ends with the reason."""
    if estimate.low is None or estimate.high is None:
        return {"low": None, "high": None, "reason": estimate.reason}
    entry = {"low": round(estimate.low, _DIGITS), "high": round(estimate.high, _DIGITS)}
    method = {"method": f"{estimate.method}, 95 %"}
    return entry | method | ({} if estimate.warning is None else {"warning": estimate.warning})


def rate_text(rate: float, sample: Sample) -> str:
    """Return `82.0% (95 %: 68.6%–90.4%)`; without an interval the rate alone."""
    return f"{rate:.1%}{_brief(estimate_rate(sample), '.1%')}"


def score_text(score: float | None, sample: Sample) -> str:
    """Return `0.8200 (95 %: 0.69–0.90)`; without an interval the score alone, `–` without one."""
    return "–" if score is None else f"{score:.4f}{_brief(estimate_mean(sample), '.2f')}"


def _brief(estimate: Estimate, form: str) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    warning = "" if estimate.warning is None else f", {estimate.warning}"
    return f" (95 %: {estimate.low:{form}}–{estimate.high:{form}}{warning})"


def figure_texts(text: str) -> tuple[str, str]:
    """Return the number and its interval apart, for figures with a smaller second line."""
    number, _, interval = text.partition(" (")
    return number, interval.removesuffix(")")


def variant_texts(variant: VariantSummary) -> tuple[str, str]:
    """Return the pass rate and the score of a variant with their intervals."""
    rate = variant.passed / variant.cases if variant.cases else None
    passed = "–" if rate is None else rate_text(rate, variant.pass_sample)
    return passed, score_text(variant.score, variant.score_sample)
