"""What a run came to: the aggregates that gates decide over and reports show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evalcore.model.annotation import AwaitedLabels, QuestionAgreement
from evalcore.model.comparison import Comparison
from evalcore.model.past import PastRuns
from evalcore.model.sample import NO_SAMPLE, Sample


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
