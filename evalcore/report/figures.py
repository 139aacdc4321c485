"""Figures of a report as people read them: amounts, durations, intervals, notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from evalcore.mistakes.wording import counted
from evalcore.model.exchange import cut_of
from evalcore.model.latency_text import latency_text
from evalcore.model.quarantine import Quarantine, QuarantineEntry
from evalcore.model.sample import Sample
from evalcore.model.summary import Summary, VariantSummary
from evalcore.report.document import Report
from evalcore.statistics.intervals import (
    Estimate,
    estimate_mean,
    estimate_rate,
    estimate_total,
)


def total_text(total: float, sample: Sample) -> str:
    """Return `95 %: 0.021–0.032`, the interval of a cost in USD; empty without one."""
    estimate = estimate_total(sample, total)
    if estimate.low is None or estimate.high is None:
        return ""
    return f"95 %: {usd_text(estimate.low)}–{usd_text(estimate.high)}"


def latency_ends_text(ends: tuple[float, float] | None) -> str:
    """Return `95 %: 1,200–1,900`, the interval of a percentile in ms; empty without one."""
    return "" if ends is None else f"95 %: {latency_text(ends[0])}–{latency_text(ends[1])}"


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


_DECIMALS: Final = 4
_DIGITS: Final = 3
_MOST_DECIMALS: Final = 15


def usd_text(value: float) -> str:
    """Return an amount without its unit, never in powers of ten: `12.5`, `0.0041`, `0.0000053`.

    It has at most 4 decimals; below 0.001 as many as its first three digits need.
    """
    size = abs(value)
    decimals = _DECIMALS
    if 0 < size < 10.0 ** (1 - _DECIMALS):
        decimals = min(_MOST_DECIMALS, _DIGITS - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{decimals}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


_PARTS: Final = {
    "cached_tokens": "cached",
    "cache_write_tokens": "written to a cache",
    "input_audio_tokens": "audio",
    "reasoning_tokens": "reasoning",
    "output_audio_tokens": "audio",
}


def tokens_text(summary: Summary) -> str:
    """Return the tokens of a run: `12,000 in (9,000 cached) + 100 out (80 reasoning)`, "" for none.

    Kinds that were not used are left out.
    """
    sides = []
    for side, kinds in (
        ("in", ("cached_tokens", "cache_write_tokens", "input_audio_tokens")),
        ("out", ("reasoning_tokens", "output_audio_tokens")),
    ):
        total = summary.tokens.get("input_tokens" if side == "in" else "output_tokens")
        if total is None:
            continue
        parts = [f"{n:,} {_PARTS[kind]}" for kind in kinds if (n := summary.tokens.get(kind))]
        sides.append(f"{total:,} {side}" + (f" ({', '.join(parts)})" if parts else ""))
    batch = summary.tokens.get("batch_tokens")
    return " + ".join(sides) + (f" ({batch:,} in batches)" if batch else "")


_MINUTE_S, _HOUR_S = 60, 3_600


def duration_text(seconds: float) -> str:
    """Return a duration in the two largest units that it has: `2.5 s`, `3 min 20 s`, `5 h 02 min`.

    Below a minute with one decimal.
    """
    if round(seconds, 1) < _MINUTE_S:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02} s"
    return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02} min"


_NONE = "–"


def measure_columns(variants: Sequence[VariantSummary]) -> list[tuple[str, list[str]]]:
    """Return the head and the cells of each column, without a measure that no variant has."""
    columns = [
        ("latency p50", [_latency(variant.p50_latency_ms) for variant in variants]),
        ("cost", [_cost(variant.total_cost_usd) for variant in variants]),
    ]
    return [(head, cells) for head, cells in columns if set(cells) != {_NONE}]


def _latency(value: float | None) -> str:
    return _NONE if value is None else f"{latency_text(value)} ms"


def _cost(value: float | None) -> str:
    return _NONE if value is None else f"{usd_text(value)} USD"


def note_lines(report: Report) -> Iterator[str]:
    """Yield lines of plain text."""
    if report.run.part:
        yield f"partial run ({'; '.join(report.run.part)}): it cannot be a baseline"
    awaited = report.summary.awaiting
    if awaited is not None:
        items = "1 item" if awaited.items == 1 else f"{awaited.items} items"
        yield f"{awaited.message} for {items}: evalcore annotate {report.run.id}"
    for agreement in report.summary.agreement:
        yield agreement.message
    yield from summary_notes(report.summary)


def summary_notes(summary: Summary) -> Iterator[str]:
    """Yield what every form of a report notes: answers that were cut, models without a price."""
    cuts: Counter[str] = Counter()
    for reason, count in summary.cut.items():
        cuts[str(cut_of(reason))] += count
    for how, count in cuts.items():
        yield f"{counted(count, 'answer')} {'was' if count == 1 else 'were'} cut {how}"
    if summary.unpriced:
        names = ", ".join(f"'{name}'" for name in summary.unpriced)
        noun = "model" if len(summary.unpriced) == 1 else "models"
        yield (
            f"no price is known for {noun} {names}, so costs are missing; "
            f'give it in evalcore.toml: [prices."{summary.unpriced[0]}"]'
        )


_LISTED = 10


def quarantine_lines(quarantine: Quarantine) -> Iterator[str]:
    """Yield a line for each quarantined case, the expired entries first; of each ten."""
    for entry in quarantine.expired[:_LISTED]:
        yield f"{_named(entry)} gates again: its quarantine ended on {entry.until}"
    if more := len(quarantine.expired) - _LISTED:
        yield from _rest(more, "expired")
    for entry in quarantine.active[:_LISTED]:
        reason = f": {entry.reason}" if entry.reason else ""
        yield f"{_named(entry)} does not gate until {entry.until}{reason}"
    if more := len(quarantine.active) - _LISTED:
        yield from _rest(more, "quarantined")


def quarantine_mark(quarantine: Quarantine, case: str) -> str:
    """Return what stands behind the outcome of a quarantined case; nothing for any other."""
    entry = quarantine.entry_of(case)
    return "" if entry is None else f", quarantined until {entry.until} ({entry.owner})"


def _named(entry: QuarantineEntry) -> str:
    return f"quarantine: {entry.case} ({entry.owner})"


def _rest(more: int, kind: str) -> Iterator[str]:
    if more > 0:
        yield f"quarantine: and {counted(more, f'more {kind} case')}"
