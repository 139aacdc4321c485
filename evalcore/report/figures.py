"""Figures of a report as people read them: amounts, durations, intervals, notes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from evalcore.model.exchange import cut_of
from evalcore.model.suite import Quarantine
from evalcore.model.summary import Sample, Summary, VariantSummary, latency_text
from evalcore.report.document import Report
from evalcore.statistics.intervals import (
    Estimate,
    estimate_mean,
    estimate_rate,
    estimate_total,
)
from evalcore.wording import counted

# Of gates and of runs.
MARKS: Final = {"pass": "✓", "fail": "✗", "inconclusive": "?", "error": "!"}
_NONE: Final = "–"


class Figure(NamedTuple):
    """A figure of a report; `interval` is its 95 % interval, `tone` the name of an outcome."""

    name: str
    value: str
    unit: str = ""
    interval: str = ""
    tone: str = ""


def measures(summary: Summary) -> Iterator[Figure]:
    """Yield what a run measured, in the order of every form; what was not measured is left out."""
    yield Figure("pass rate", *_rate(summary.pass_rate, summary.pass_sample))
    if summary.score is not None:
        yield Figure("score", *_score(summary.score, summary.score_sample))
    for name, value, ends in (
        ("latency p50", summary.p50_latency_ms, summary.p50_latency_ends_ms),
        ("latency p95", summary.p95_latency_ms, summary.p95_latency_ends_ms),
    ):
        if value is not None:
            yield Figure(name, latency_text(value), "ms", _interval(ends or (), latency_text))
    if (cost := summary.total_cost_usd) is not None:
        interval = _interval(estimate_total(summary.cost_sample, cost)[:2], usd_text)
        yield Figure("cost", usd_text(cost), "USD", interval)
    if summary.judge_cost_usd is not None:
        yield Figure("judges", usd_text(summary.judge_cost_usd), "USD")
    if tokens := tokens_text(summary):
        yield Figure("tokens", tokens)


def rate_text(rate: float, sample: Sample) -> str:
    """Return `82.0% (95 %: 68.6%–90.4%)`; without an interval the rate alone."""
    return _with_interval(*_rate(rate, sample))


def score_text(score: float | None, sample: Sample) -> str:
    """Return `0.8200 (95 %: 0.69–0.90)`; without an interval the score alone, `–` without one."""
    return _NONE if score is None else _with_interval(*_score(score, sample))


def variant_cells(variants: Sequence[VariantSummary]) -> tuple[list[str], list[list[str]]]:
    """Return the heads and a row for each variant: rate, score, and the measures that one has."""
    rows = [
        (
            rate_text(each.passed / each.cases, each.pass_sample) if each.cases else _NONE,
            score_text(each.score, each.score_sample),
            _measure(each.p50_latency_ms, latency_text, "ms"),
            _measure(each.total_cost_usd, usd_text, "USD"),
        )
        for each in variants
    ]
    heads = ["pass rate", "score", "latency p50", "cost"]
    shown = [n for n in range(4) if n < 2 or {row[n] for row in rows} - {_NONE}]
    return [heads[n] for n in shown], [[row[n] for n in shown] for row in rows]


def _measure(value: float | None, text: Callable[[float], str], unit: str) -> str:
    return _NONE if value is None else f"{text(value)} {unit}"


def _rate(rate: float, sample: Sample) -> tuple[str, str, str]:
    return f"{rate:.1%}", "", _estimated(estimate_rate(sample), "{:.1%}".format)


def _score(score: float, sample: Sample) -> tuple[str, str, str]:
    return f"{score:.4f}", "", _estimated(estimate_mean(sample), "{:.2f}".format)


def _with_interval(value: str, _unit: str, interval: str) -> str:
    return f"{value} ({interval})" if interval else value


def _estimated(estimate: Estimate, text: Callable[[float], str]) -> str:
    warning = "" if estimate.warning is None else f", {estimate.warning}"
    interval = _interval(estimate[:2], text)
    return interval and f"{interval}{warning}"


def _interval(ends: Sequence[float | None], text: Callable[[float], str]) -> str:
    """Return `95 %: 1,200–1,900`; empty without an interval."""
    shown = [text(end) for end in ends if end is not None]
    return f"95 %: {shown[0]}–{shown[1]}" if len(shown) == 2 else ""


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


_TOKENS: Final = (
    ("input_tokens", "in", "cached_tokens", "cached"),
    ("output_tokens", "out", "reasoning_tokens", "reasoning"),
)


def tokens_text(summary: Summary) -> str:
    """Return the tokens of a run: `12,000 in (9,000 cached) + 100 out (80 reasoning)`, "" for none.

    Kinds that were not used are left out.
    """
    sides = []
    for key, side, part, kind in _TOKENS:
        if (total := summary.tokens.get(key)) is not None:
            n = summary.tokens.get(part)
            sides.append(f"{total:,} {side}" + (f" ({n:,} {kind})" if n else ""))
    return " + ".join(sides)


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


_LISTED: Final = 10


def quarantine_lines(quarantine: Quarantine) -> Iterator[str]:
    """Yield a line for each quarantined case, the expired entries first; of each ten."""
    for kind, entries in (("expired", quarantine.expired), ("quarantined", quarantine.active)):
        for entry in entries[:_LISTED]:
            name = f"quarantine: {entry.case} ({entry.owner})"
            if kind == "expired":
                yield f"{name} gates again: its quarantine ended on {entry.until}"
            else:
                reason = f": {entry.reason}" if entry.reason else ""
                yield f"{name} does not gate until {entry.until}{reason}"
        if (more := len(entries) - _LISTED) > 0:
            yield f"quarantine: and {counted(more, f'more {kind} case')}"


def quarantine_mark(quarantine: Quarantine, case: str) -> str:
    """Return what stands behind the outcome of a quarantined case; nothing for any other."""
    entry = quarantine.entry_of(case)
    return "" if entry is None else f", quarantined until {entry.until} ({entry.owner})"
