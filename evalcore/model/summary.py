"""What a run came to: the aggregates that gates decide over and reports show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from evalcore.model.annotation import AwaitedLabels, QuestionAgreement
from evalcore.model.exchange import cut_of
from evalcore.model.past import PastRuns


class Shape(NamedTuple):
    """How the values of the units (cases, or means of clusters) lie.

    `least` and `most` are the smallest and the largest one. `kurtosis` is the mean fourth power of
    the distances from the mean over the squared variance: 1 at least, 3 of a normal distribution,
    infinite where all values are equal. Few units carry the variance where it is large.
    """

    least: float
    most: float
    kurtosis: float


def kurtosis_of(units: int, squares: float, fourth_powers: float) -> float:
    """Return the kurtosis from the sums of squared and fourth powers of distances from the mean."""
    return units * fourth_powers / squares**2 if squares else math.inf


class UnitSums(NamedTuple):
    """The distances of the units (cases or clusters) from the mean; a cluster's is its values' sum.

    `squares` and `fourth_powers` are sums over the `units`, `least` and `most` single distances.
    """

    units: int
    squares: float
    least: float
    most: float
    fourth_powers: float

    def shape(self, n: int, mean: float) -> Shape:
        """Return how the units' means lie, of `n` values in all."""
        size = n / self.units
        kurtosis = kurtosis_of(self.units, self.squares, self.fourth_powers)
        return Shape(mean + self.least / size, mean + self.most / size, kurtosis)


class Sample(NamedTuple):
    """`n` values around `mean`, in `units` (cases or clusters), `df` of them free.

    `standard_error` is None where there is none; `reason` says why. `passed` counts the values that
    are 1 where each is 0 or 1. `clustered`: the units are clusters. `noise` is the mean variance of
    one iteration around its case's mean; None where no case has two. `shape` is None where the
    values are not known to lie between bounds.
    """

    n: int
    mean: float
    units: int
    standard_error: float | None = None
    reason: str | None = None
    df: int = 0
    passed: int | None = None
    clustered: bool = False
    iterations: int = 1
    noise: float | None = None
    shape: Shape | None = None


NO_SAMPLE = Sample(0, 0.0, 0, reason="nothing is measured")


class DifferenceKind(StrEnum):
    """In what a case differs from the baseline."""

    ASSERTION = "assertion"
    LATENCY = "latency"
    COST = "cost"
    TOKENS = "tokens"
    SCORE = "score"
    MISSING = "missing"


class CaseState(StrEnum):
    """What is known of a case on one side: a measurement, or why there is none."""

    MEASURED = "measured"
    BLOCKED = "blocked"
    ERROR = "error"
    SKIPPED = "skipped"


# What takes a few milliseconds takes several times as long when the machine is busy: a difference
# below this says nothing of the target.
CLOCK_NOISE_MS = 50.0
# What `no_regressions` always counts; the other kinds are metrics (`allow_metric_regressions`).
HARD_KINDS = frozenset({DifferenceKind.ASSERTION, DifferenceKind.MISSING})
# What a case took. Reports list it apart from what became better or worse.
MEASURE_KINDS = frozenset({DifferenceKind.LATENCY, DifferenceKind.COST, DifferenceKind.TOKENS})


class Tolerances(NamedTuple):
    """How much worse a case may be: relative increases, and the absolute fall of a score.

    Latencies that differ by less than `noise_ms` are the same: a busy machine's noise. By earlier
    rules those of at most `floor_ms` on both sides are.
    """

    latency: float = 0.2
    cost: float = 0.1
    tokens: float = 0.2
    score: float = 0.1
    floor_ms: float = 0.0
    noise_ms: float = 0.0


class Difference(NamedTuple):
    """One case of one variant that differs from the baseline.

    `was` and `now` are the baseline's and the candidate's value of what `kind` names (passed: 1.0
    or 0.0). `missing_from` is `candidate`, `baseline` or
    `both`. Where a case has several iterations, `p`
    is Fisher's of its passes, and `settled` is False for what may be chance.
    """

    variant: str
    case: str
    kind: DifferenceKind
    was: float | None = None
    now: float | None = None
    missing_from: str | None = None
    p: float | None = None
    settled: bool = True


class Measure(NamedTuple):
    """A metric over the `cases` that both sides measured, with one iteration of each case.

    `was` and `now` are the baseline's and the candidate's median latency (ms), sum of costs (USD)
    or tokens, or mean score.
    """

    kind: DifferenceKind
    was: float
    now: float
    cases: int


class Paired(NamedTuple):
    """Candidate − baseline of the scores of the cases that both measured.

    `sums` are those of the differences' distances from the mean, by case or by cluster. `noise` is
    the variance that a case's difference has of its
    `iterations`; None where they are not repeated on both sides.
    """

    cases: int
    mean: float
    sums: UnitSums
    clustered: bool = False
    noise: float | None = None
    iterations: int = 1


class Unsettled(NamedTuple):
    """A regression that may be chance: passes of iterations, and the p that would settle it.

    `was_passed` of `was_run` iterations of the baseline passed, `now_passed` of `now_run` since.
    """

    case: str
    was_passed: int
    was_run: int
    now_passed: int
    now_run: int
    alpha: float


@dataclass(frozen=True, slots=True)
class VariantComparison:
    """One candidate against its baseline: exact counts, and the first differences of each list.

    `run` is the baseline's run if it is another one. `baseline_cases` and `candidate_cases` count
    the cases of each side by what is known of them; `measured_in_both` are measured on both, `lost`
    by the baseline and not by the candidate (without those that its error policy excludes).
    `compared` counts the cases that both have; `worse` and `better` those of them that passed on
    one side only. Counts are by kind; the `unsettled_kinds` are among the regressions. A case
    counts once in `regressed_cases` and in `improved_cases`, in any number of kinds but those of
    `MEASURE_KINDS`, and in `hard_regressed_cases` if one of them is of `HARD_KINDS`;
    `worse_cases` are worse in any kind. `measures` are those of the whole run; `worse_measures` and
    `better_measures` list the differences of `MEASURE_KINDS`, `regressions` and `improvements` the
    others.
    """

    variant: str
    baseline: str
    run: str | None = None
    baseline_cases: Mapping[CaseState, int] = field(default_factory=dict)
    candidate_cases: Mapping[CaseState, int] = field(default_factory=dict)
    measured_in_both: int = 0
    lost: int = 0
    compared: int = 0
    worse: int = 0
    better: int = 0
    regression_kinds: Mapping[DifferenceKind, int] = field(default_factory=dict)
    improvement_kinds: Mapping[DifferenceKind, int] = field(default_factory=dict)
    unsettled_kinds: Mapping[DifferenceKind, int] = field(default_factory=dict)
    missing_count: int = 0
    regressed_cases: int = 0
    hard_regressed_cases: int = 0
    improved_cases: int = 0
    worse_cases: int = 0
    paired: Paired | None = None
    regressions: tuple[Difference, ...] = ()
    improvements: tuple[Difference, ...] = ()
    missing: tuple[Difference, ...] = ()
    unsettled: Unsettled | None = None
    measures: tuple[Measure, ...] = ()
    worse_measures: tuple[Difference, ...] = ()
    better_measures: tuple[Difference, ...] = ()

    @property
    def unmeasured(self) -> str | None:
        """Why this is no comparison: nothing is measured on a side. None if both are."""
        baseline = self.baseline if self.run is None else f"{self.baseline}' of run '{self.run}"
        for role, name, cases in (
            ("baseline", baseline, self.baseline_cases),
            ("variant", self.variant, self.candidate_cases),
        ):
            if cases.get(CaseState.MEASURED):
                continue
            total = sum(cases.values())
            states = [
                f"{cases[state]} {text}" for state, text in _UNMEASURED.items() if cases.get(state)
            ]
            noun = "case" if total == 1 else "cases"
            why = f"of {total} {noun} {', '.join(states)}" if states else "it has no result"
            return f"nothing is measured in {role} '{name}': {why}"
        return None

    @property
    def regression_count(self) -> int:
        """How many regressions of outcomes and scores there are, listed or not."""
        return _number_of_changes(self.regression_kinds)

    @property
    def improvement_count(self) -> int:
        """How many improvements of outcomes and scores there are, listed or not."""
        return _number_of_changes(self.improvement_kinds)

    @property
    def complete(self) -> bool:
        """Whether every difference is listed."""
        listed = (
            *self.regressions,
            *self.improvements,
            *self.worse_measures,
            *self.better_measures,
        )
        kinds = (*self.regression_kinds.values(), *self.improvement_kinds.values())
        return (sum(kinds), self.missing_count) == (len(listed), len(self.missing))


def _number_of_changes(kinds: Mapping[DifferenceKind, int]) -> int:
    return sum(number for kind, number in kinds.items() if kind not in MEASURE_KINDS)


_UNMEASURED = {
    CaseState.ERROR: "in error",
    CaseState.BLOCKED: "blocked",
    CaseState.SKIPPED: "skipped",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every candidate against its baseline; `unavailable` says why some or all have none.

    A comparison without variants was not possible at all.
    """

    variants: tuple[VariantComparison, ...] = ()
    unavailable: tuple[str, ...] = ()

    @property
    def regression_count(self) -> int:
        """How many regressions of outcomes and scores there are over all variants."""
        return sum(variant.regression_count for variant in self.variants)

    @property
    def improvement_count(self) -> int:
        """How many improvements of outcomes and scores there are over all variants."""
        return sum(variant.improvement_count for variant in self.variants)


@dataclass(frozen=True, slots=True)
class Counts:
    """Work items by lifecycle, and the completed ones by outcome."""

    planned: int = 0
    completed: int = 0
    error: int = 0
    cancelled: int = 0
    skipped: int = 0
    passed: int = 0
    failed: int = 0
    blocked: int = 0

    @property
    def measured(self) -> int:
        """How many items have a measured outcome."""
        return self.passed + self.failed

    @property
    def add_up(self) -> bool:
        """Whether each planned item ended in exactly one way (docs/reference/engine.md)."""
        ended = self.completed + self.error + self.cancelled + self.skipped
        return self.planned == ended and self.completed == self.passed + self.failed + self.blocked


@dataclass(frozen=True, slots=True)
class Extreme:
    """The work item that holds a maximum, and the maximum."""

    variant: str
    case: str
    value: float


@dataclass(frozen=True, slots=True)
class VariantSummary:
    """Cases of one variant: how many there are and how many passed; their mean score.

    The samples are what the intervals of score and pass rate are computed from. The median latency
    and the total cost are None where they were not measured. `is_planned` is false where every case
    is for the targets of other variants.
    """

    variant: str
    cases: int
    passed: int
    score: float | None
    score_sample: Sample = NO_SAMPLE
    pass_sample: Sample = NO_SAMPLE
    p50_latency_ms: float | None = None
    total_cost_usd: float | None = None
    is_planned: bool = True


@dataclass(frozen=True, slots=True)
class RequiredFailure:
    """A required assertion that did not reach its threshold."""

    variant: str
    case: str
    assertion: str
    score: float
    required: float


@dataclass(frozen=True, slots=True)
class RequiredCase:
    """A case that a gate requires and that did not pass in a variant, or was not run there."""

    case: str
    variant: str
    was_run: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """Aggregates of a run, all computed in SQL. None means not measured, never zero.

    `cases` counts case × variant after the iterations are reduced; `passed_cases` those that
    passed. Under the error policy `exclude`, cases without any measured item are in neither.
    `asserted` counts the results of assertions, `asserted_errors` assertions in error in completed
    items, `unjudged` those of saved evals that are blocked because their judge gave no answer;
    `required_unmeasured`: each of the required assertions is blocked or in error.
    `each_item_once` says that the rows are those of the planned items, one each.
    `refused` counts the items that were not tried since a provider refused every call.
    `costliest`, alone and with its judges, and `required_cases` (those that did not pass) are there
    for the gates that ask. `judge_cost_usd` is
    what the assertions' own calls cost; it is in no other sum. `comparison` is None if there is no
    baseline; `no_baseline` says why where one could be expected, and `is_first_run` is false where
    one is named but was left out, deleted or damaged. `gate_rows` are the rows of the
    gates' own queries, `past` the earlier runs that gates look back on.
    The samples are what the intervals of score, pass rate, and of latency, cost and tokens (means
    and totals) are computed from; `…_ends_ms` are the 95 % intervals of the percentiles.
    `quarantined` are the cases that are left out of every other value here: the summary that gates
    decide over has some, the one that reports show has none. `tokens` are the sums of what was
    counted, by kind (`input_tokens`, `cached_tokens`, …); `unpriced` the models without a price;
    `cut` counts the items with an answer that was cut, by the provider's reason.
    `awaiting` says which labels of people are missing, None if none are; `agreement` how well those
    agree who answered the same.
    """

    counts: Counts
    cases: int
    passed_cases: int
    score: float | None
    asserted: int | None = None
    asserted_errors: int = 0
    unjudged: int = 0
    variants: tuple[VariantSummary, ...] = ()
    avg_latency_ms: float | None = None
    p50_latency_ms: float | None = None
    p95_latency_ms: float | None = None
    slowest: Extreme | None = None
    unmeasured_latency: int = 0
    unmeasured_cost: int = 0
    unmeasured_tokens: int = 0
    each_item_once: bool = True
    refused: int = 0
    avg_cost_usd: float | None = None
    total_cost_usd: float | None = None
    total_tokens: int | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)
    unpriced: tuple[str, ...] = ()
    cut: Mapping[str, int] = field(default_factory=dict)
    judge_cost_usd: float | None = None
    required_failures: int = 0
    required_unmeasured: bool = False
    required_examples: tuple[RequiredFailure, ...] = field(default=())
    costliest: Extreme | None = None
    costliest_with_judges: Extreme | None = None
    required_cases: tuple[RequiredCase, ...] = ()
    comparison: Comparison | None = None
    no_baseline: str | None = None
    is_first_run: bool = True
    past: PastRuns | None = None
    gate_rows: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    score_sample: Sample = NO_SAMPLE
    pass_sample: Sample = NO_SAMPLE
    latency_sample: Sample = NO_SAMPLE
    cost_sample: Sample = NO_SAMPLE
    token_sample: Sample = NO_SAMPLE
    p50_latency_ends_ms: tuple[float, float] | None = None
    p95_latency_ends_ms: tuple[float, float] | None = None
    quarantined: tuple[str, ...] = ()
    awaiting: AwaitedLabels | None = None
    agreement: tuple[QuestionAgreement, ...] = ()

    @property
    def nothing_gates(self) -> bool:
        """Whether every case of the run is quarantined."""
        return bool(self.quarantined) and not self.counts.planned

    @property
    def nothing_evaluated(self) -> bool:
        """Whether errors or limits left no measured item, and no label of a person is missing."""
        counts = self.counts
        if not counts.planned or counts.measured or self.awaiting is not None:
            return False
        return not counts.completed or self.asserted_errors + self.unjudged > 0

    @property
    def adds_up(self) -> bool:
        """Whether each planned item has exactly one row and ended in exactly one way."""
        return self.each_item_once and self.counts.add_up

    @property
    def pass_rate(self) -> float:
        """Passed share of the cases; 0.0 when there is none."""
        return self.passed_cases / self.cases if self.cases else 0.0


def latency_text(milliseconds: float | None) -> str:
    """Return a latency without its unit: `1,015`, `3`; below 1 its first digit: `0.4`, `0.03`.

    `–` for None.
    """
    if milliseconds is None:
        return "–"
    if not 0 < milliseconds < 1:
        return f"{milliseconds:,.0f}"
    decimals = min(15, -math.floor(math.log10(milliseconds)))
    return f"{milliseconds:.{decimals}f}".rstrip("0").rstrip(".")


class Metric(StrEnum):
    """A figure of a run that a trend shows."""

    SCORE = "score"
    PASS_RATE = "pass_rate"
    LATENCY = "latency"
    COST = "cost"
    TOKENS = "tokens"

    @property
    def heading(self) -> str:
        """What the figure is, for a heading or an axis."""
        return _TITLES[self]

    @property
    def is_share(self) -> bool:
        """Whether the figure lies between 0 and 1."""
        return self in {Metric.SCORE, Metric.PASS_RATE}

    def text(self, value: float | None) -> str:
        """Return a value for people, `–` for none."""
        if self is Metric.LATENCY:
            return latency_text(value)
        return "–" if value is None else _FORMS[self].format(value)


_TITLES: Mapping[Metric, str] = {
    Metric.SCORE: "score",
    Metric.PASS_RATE: "pass rate",
    Metric.LATENCY: "median latency (ms)",
    Metric.COST: "cost (USD)",
    Metric.TOKENS: "tokens",
}
_FORMS: Mapping[Metric, str] = {
    Metric.SCORE: "{:.4f}",
    Metric.PASS_RATE: "{:.1%}",
    Metric.COST: "{:,.4f}",
    Metric.TOKENS: "{:,.0f}",
}


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """One run's figure of one variant. `started_at` is aware, in UTC.

    `low` and `high` are the ends of its 95 % interval, None where it has none. `decision` is the
    run's, or the state of a run without one. `changes` says in short texts what differs from the
    point before of the variant. `part` says why the run is of a part of its suite, None for a whole
    run.
    """

    run_id: str
    started_at: datetime
    variant: str
    value: float | None
    low: float | None = None
    high: float | None = None
    decision: str = "pass"
    changes: tuple[str, ...] = ()
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Trend:
    """The points of a suite's whole runs, oldest first; those of one run stand together.

    `partial` are those of runs of a part of the suite, which no trend counts.
    """

    suite: str
    metric: Metric
    points: tuple[TrendPoint, ...]
    partial: tuple[TrendPoint, ...] = ()

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants in the order in which they appear."""
        return tuple(dict.fromkeys(point.variant for point in self.points))


class Failure(NamedTuple):
    """A work item that did not pass: its entry in the report (`items[]` of report.json)."""

    case: str
    variant: str
    item: Mapping[str, Any]


def cut_mark(finish_reason: str | None) -> str:
    """Return `, answer cut (length)` for an answer that was cut, "" for one that is whole."""
    return "" if cut_of(finish_reason) is None else f", answer cut ({finish_reason})"
