"""Candidates against their baseline, case by case (suite-api.md, Comparison with the baseline)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from evalcore.model.sample import UnitSums


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
            if not cases.get(CaseState.MEASURED):
                return f"nothing is measured in {role} '{name}': {_why_unmeasured(cases)}"
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


def _why_unmeasured(cases: Mapping[CaseState, int]) -> str:
    total = sum(cases.values())
    parts = [f"{cases[state]} {text}" for state, text in _UNMEASURED.items() if cases.get(state)]
    noun = "case" if total == 1 else "cases"
    return f"of {total} {noun} {', '.join(parts)}" if parts else "it has no result"


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
