"""`report.json`: the report that every other form is made from (docs/reference/report.md).

Everything that may differ between two runs of the same plan stands in `run`, `summary`, `metrics`
and scorers of measured times; the rest is byte-identical.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from evalcore.model.run import Decision, GateResult
from evalcore.model.suite import NO_QUARANTINE, Quarantine
from evalcore.model.summary import (
    MEASURE_KINDS,
    Comparison,
    Difference,
    DifferenceKind,
    Sample,
    Summary,
    VariantComparison,
    VariantSummary,
)
from evalcore.statistics.intervals import (
    DIFFERENCES,
    Estimate,
    bounded_interval,
    estimate_amount,
    estimate_mean,
    estimate_rate,
    estimate_total,
)
from evalcore.statistics.tests import mcnemar, paired_moments


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The block `run`: what differs from run to run. Times are ISO 8601 in UTC.

    `budget` is what a run with a budget has spent of it: `billed` as providers said, and what was
    reserved by calls that came to no end (`unsettled`), each `{cost_usd, tokens}`.
    `evidence` is what the run keeps of its items, where that is not all.
    `reused` has `{run, items}` for each earlier run whose evidence was taken over.
    `part` has the reasons why a run is of a part of its suite.
    """

    id: str
    mode: str
    started_at: str
    ended_at: str
    duration_s: float
    reexecuted: int
    engine: Mapping[str, str]
    reused: tuple[Mapping[str, Any], ...] = ()
    budget: Mapping[str, Any] | None = None
    evidence: str | None = None
    part: tuple[str, ...] = ()

    def block(self) -> dict[str, Any]:
        """Return the JSON object; what the run has not (a budget) is no key of it."""
        values = asdict(self)
        for name in ("budget", "evidence", "part"):
            if not values[name]:
                del values[name]
        return values


@dataclass(frozen=True, slots=True)
class Report:
    """A decided run, without its cases."""

    run: RunFacts
    suite: str
    format: str
    decision: Decision
    threshold: float | None
    summary: Summary
    gates: tuple[GateResult, ...]
    cases_complete: bool
    quarantine: Quarantine = NO_QUARANTINE
    iterations: Mapping[str, Any] | None = None


def json_integer(number: int | None) -> int | float | None:
    """Return a number as JSON holds it: beyond 64 bits as a floating-point number."""
    return number if number is None or abs(number) < 2**63 else float(number)


def report_head(report: Report) -> dict[str, Any]:
    """Return the report as JSON values, without `cases`."""
    summary, comparison = report.summary, report.summary.comparison
    return {
        "run": report.run.block(),
        "suite": report.suite,
        "format": report.format,
        "decision": report.decision,
        "score": summary.score,
        "threshold": report.threshold,
        "counts": asdict(summary.counts),
        "summary": {
            "pass_rate": summary.pass_rate,
            "avg_latency_ms": summary.avg_latency_ms,
            "p50_latency_ms": summary.p50_latency_ms,
            "p95_latency_ms": summary.p95_latency_ms,
            "avg_cost_usd": summary.avg_cost_usd,
            "total_cost_usd": summary.total_cost_usd,
            "total_tokens": json_integer(summary.total_tokens),
            "judge_cost_usd": summary.judge_cost_usd,
            "tokens": {name: json_integer(count) for name, count in summary.tokens.items()},
            "unpriced_models": list(summary.unpriced),
            "cut_answers": dict(summary.cut),
            "regressions": 0 if comparison is None else comparison.regression_count,
            "improvements": 0 if comparison is None else comparison.improvement_count,
            "intervals": interval_entries(summary),
        },
        "comparison": comparison_entries(comparison),
        "gates": [
            {"name": gate.name, "outcome": gate.outcome, "message": gate.message}
            | {"details": dict(gate.details)}
            | ({} if gate.remedy is None else {"remedy": gate.remedy})
            for gate in report.gates
        ],
        "cases_complete": report.cases_complete,
        **({} if report.iterations is None else {"iterations": dict(report.iterations)}),
        **({} if summary.awaiting is None else {"awaiting": asdict(summary.awaiting)}),
        **({"agreement": list(map(asdict, summary.agreement))} if summary.agreement else {}),
        **({"quarantine": report.quarantine.settings()} if report.quarantine else {}),
    }


def interval_entries(summary: Summary) -> dict[str, Any]:
    """Return the intervals by the name of the number, and those of each variant."""
    unmeasured = Estimate(reason="nothing is measured")

    def mean(value: float | None, sample: Sample) -> dict[str, Any]:
        if value is None:
            return _interval(unmeasured)
        return _interval(estimate_amount(sample._replace(mean=value)))

    def total(value: float | None, sample: Sample) -> dict[str, Any]:
        return _interval(unmeasured if value is None else estimate_total(sample, value))

    def percentile(ends: tuple[float, float] | None, sample: Sample) -> dict[str, Any]:
        if ends is None:
            return _interval(Estimate(reason=sample.reason or unmeasured.reason))
        return _interval(Estimate(*ends, method="woodruff"))

    def rates(each: Summary | VariantSummary) -> dict[str, Any]:
        return {
            "pass_rate": _interval(estimate_rate(each.pass_sample)),
            "score": _interval(estimate_mean(each.score_sample)),
        }

    latency, cost = summary.latency_sample, summary.cost_sample
    return {
        **rates(summary),
        "avg_latency_ms": mean(summary.avg_latency_ms, latency),
        "avg_cost_usd": mean(summary.avg_cost_usd, cost),
        "p50_latency_ms": percentile(summary.p50_latency_ends_ms, latency),
        "p95_latency_ms": percentile(summary.p95_latency_ends_ms, latency),
        "total_cost_usd": total(summary.total_cost_usd, cost),
        "total_tokens": total(summary.total_tokens, summary.token_sample),
        "variants": {each.variant: rates(each) for each in summary.variants},
    }


def _interval(estimate: Estimate) -> dict[str, Any]:
    """Return the ends with the method, or null ends with the reason."""
    if estimate.low is None or estimate.high is None:
        return {"low": None, "high": None, "reason": estimate.reason}
    return {
        "low": round(estimate.low, 6),
        "high": round(estimate.high, 6),
        "method": f"{estimate.method}, 95 %",
        **({} if estimate.warning is None else {"warning": estimate.warning}),
    }


def undecided_head(report: Report) -> dict[str, Any]:
    """Return the report for a function that decides: without gates, with each variant's cases."""
    head = report_head(report)
    del head["gates"], head["decision"]
    head["variants"] = [
        {"variant": each.variant, "cases": each.cases, "passed": each.passed, "score": each.score}
        for each in report.summary.variants
    ]
    return head


_COMMAND = re.compile(r"#(?=#[^\S\n]*\w*\[)")
# Valid inside of JSON texts, and the end of a line to many that read JSON lines.
_LINE_ENDS = (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085"))


def on_one_line(json_text: str) -> str:
    """Return JSON text with what JSON allows in texts and a log's reader obeys escaped: line ends,
    and commands such as `##[error]`.
    """
    # Most texts have none of it, and a single character is looked for ten times as fast.
    if "#" in json_text and "##" in json_text:
        json_text = _COMMAND.sub(r"\\u0023", json_text)
    if json_text.isascii():
        return json_text
    for written, escaped in _LINE_ENDS:
        json_text = json_text.replace(written, escaped)
    return json_text


def report_chunks(report: Report, cases: Iterable[Sequence[str]]) -> Iterator[bytes]:
    """Yield the text of the report in UTF-8; `cases` are batches of JSON texts, a line each."""
    head = orjson.dumps(report_head(report)).decode()
    yield on_one_line(f'{head[:-1]},"cases":[').encode()
    separator = "\n"
    for batch in cases:
        yield on_one_line(separator + ",\n".join(batch)).encode()
        separator = ",\n"
    yield b"\n]}\n"


def comparison_entries(comparison: Comparison | None) -> list[dict[str, Any]]:
    """Return one entry for each candidate, in the order of the variants; [] without a baseline."""
    return [] if comparison is None else [_entry(candidate) for candidate in comparison.variants]


def difference_entry(entry: Difference) -> dict[str, Any]:
    """Return a difference; what does not apply to its kind is left out."""
    values: dict[str, Any] = {
        "variant": entry.variant,
        "case": entry.case,
        "kind": entry.kind,
    }
    if entry.missing_from is not None:
        values["missing_from"] = entry.missing_from
    else:
        values |= {"baseline": entry.was, "candidate": entry.now}
    if entry.p is not None:
        values |= {"p": entry.p, "settled": entry.settled}
    return values


def _entry(candidate: VariantComparison) -> dict[str, Any]:
    return {
        "variant": candidate.variant,
        "baseline": candidate.baseline,
        "run": candidate.run,
        "compared": candidate.compared,
        "measured": {
            "baseline": {str(state): n for state, n in candidate.baseline_cases.items()},
            "candidate": {str(state): n for state, n in candidate.candidate_cases.items()},
            "both": candidate.measured_in_both,
        },
        "regressions": [difference_entry(entry) for entry in candidate.regressions],
        "improvements": [difference_entry(entry) for entry in candidate.improvements],
        "missing": [difference_entry(entry) for entry in candidate.missing],
        "complete": candidate.complete,
        "counts": {
            "regressions": _outcomes(candidate.regression_kinds),
            "improvements": _outcomes(candidate.improvement_kinds),
            "unsettled": {str(kind): n for kind, n in candidate.unsettled_kinds.items()},
            "missing": candidate.missing_count,
        },
        "measures": _measures(candidate),
        "score": _score(candidate),
        "passed": {
            "worse": candidate.worse,
            "better": candidate.better,
            "p": mcnemar(candidate.worse, candidate.better) if candidate.compared else None,
            "method": "mcnemar, exact",
        },
    }


def _outcomes(kinds: Mapping[DifferenceKind, int]) -> dict[str, int]:
    return {str(kind): number for kind, number in kinds.items() if kind not in MEASURE_KINDS}


def _measures(candidate: VariantComparison) -> dict[str, Any]:
    """Return the latency, cost and tokens of the run, and the cases in which they differ."""
    return {
        "run": {
            str(each.kind): {
                "baseline": each.was,
                "candidate": each.now,
                "cases": each.cases,
                "worse": candidate.regression_kinds.get(each.kind, 0),
                "better": candidate.improvement_kinds.get(each.kind, 0),
            }
            for each in candidate.measures
            if each.kind in MEASURE_KINDS
        },
        "worse": [difference_entry(entry) for entry in candidate.worse_measures],
        "better": [difference_entry(entry) for entry in candidate.better_measures],
    }


def _score(candidate: VariantComparison) -> dict[str, Any]:
    """Return the mean difference of the scores with its 95 % interval, null where there is none."""
    moments = paired_moments(candidate.paired)
    values: dict[str, Any] = {
        "difference": None if candidate.paired is None else candidate.paired.mean,
        "low": None,
        "high": None,
        "cases": 0 if candidate.paired is None else candidate.paired.cases,
    }
    if moments is None:
        clustered = candidate.paired is not None and candidate.paired.clustered
        few = "clusters" if clustered else "cases"
        return {**values, "reason": f"fewer than two shared {few}"}
    low, high, method = bounded_interval(moments, DIFFERENCES)
    return {**values, "low": low, "high": high, "method": f"paired difference, {method}, 95 %"}
