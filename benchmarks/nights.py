"""Simulated nights, and what the gates' own classes decide of them (benchmarks.decisions)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy

from evalcore.gates.comparing import NoRegressions, NoSignificantRegression
from evalcore.gates.drift import NoDrift
from evalcore.gates.over_time import NoDropFromHistory, NoNewFailures
from evalcore.gates.reliability import Reliable
from evalcore.gates.rounds import RoundGates, RoundItem
from evalcore.gates.sequential import CaseValue, SeenValue, SequentialGate, SequentialRule
from evalcore.model.comparison import (
    CaseState,
    Comparison,
    DifferenceKind,
    Paired,
    Unsettled,
    VariantComparison,
)
from evalcore.model.gate import GateOutcome
from evalcore.model.past import PastRuns
from evalcore.model.suite import Policy, ScoreRule
from evalcore.model.summary import Counts, Summary, VariantSummary
from evalcore.statistics.iterated import pass_all_k

CASES, ITERATIONS = 400, 3
AUTO_MOST = 8
ALPHA = 0.05
POLICY = Policy(ScoreRule.WEIGHTED, ())
Array = Any


class Night(NamedTuple):
    """What a gate decided, and after how many of the cases."""

    outcome: GateOutcome
    cases: int = CASES


def probabilities(source: numpy.random.Generator) -> Array:
    return source.beta(8, 2, CASES)


def run_of(source: numpy.random.Generator, p: Array, iterations: int = ITERATIONS) -> Array:
    """Return the scores of a night's cases: the share of iterations that passed."""
    return source.binomial(iterations, numpy.clip(p, 0, 1)) / iterations


def fallen(p: Array, drop: float) -> Array:
    """Return probabilities whose mean is lower by `drop`, each of them in proportion."""
    return p * (1 - drop / p.mean())


def summary_of(gate: Any, rows: Sequence[Any], runs: int) -> Summary:
    past = PastRuns(tuple(f"run-{number}" for number in range(runs)))
    counts = Counts(planned=CASES, completed=CASES, passed=CASES)
    return Summary(counts, CASES, CASES, 0.8, past=past, gate_rows={gate.key: tuple(rows)})


def paired(differences: Array) -> Paired:
    mean = float(differences.mean())
    return Paired(len(differences), mean, float(((differences - mean) ** 2).sum()))


def against_variant(differences: Array, margin: float) -> Night:
    measured = {CaseState.MEASURED: CASES}
    candidate = VariantComparison(
        "b", "a", None, measured, measured, CASES, compared=CASES, paired=paired(differences)
    )
    summary = Summary(
        Counts(),
        CASES,
        0,
        0.8,
        variants=(VariantSummary("b", CASES, 0, 0.8),),
        comparison=Comparison((candidate,)),
    )
    return Night(NoSignificantRegression(margin, ALPHA).decide(summary, POLICY).outcome)


def against_history(differences: Array, margin: float) -> Night:
    gate = NoDropFromHistory(20, margin, ALPHA)
    sample = paired(differences)
    row = ("b", CASES, 0, sample.mean, sample.square_sum, None, None)
    return Night(gate.decide(summary_of(gate, [row], 20), POLICY).outcome)


def stopped(rule: SequentialRule, values: Array) -> Night | None:
    """Return the decision of a run that stops early; None if it goes to its end."""
    gate = SequentialGate(rule, [""], CASES)
    for number, value in enumerate(values):
        gate.add([SeenValue(number, rule.value, "", float(value))])
        if gate.outcome is not None:
            return Night(gate.outcome, number + 1)
    return None


def early_difference(margin: float, differences: Array, whole: Callable[..., Night]) -> Night:
    rule = SequentialRule(CaseValue.DIFFERENCE, -margin, ALPHA / 2, per_variant=True)
    return stopped(rule, differences) or whole(differences, margin)


def variant_night(drop: float, margin: float, *, early: bool = False) -> Callable[..., Night]:
    def decide(source: numpy.random.Generator) -> Night:
        p = probabilities(source)
        differences = run_of(source, fallen(p, drop)) - run_of(source, p)
        if early:
            return early_difference(margin, differences, against_variant)
        return against_variant(differences, margin)

    return decide


def history_night(drop: float, margin: float, *, early: bool = False) -> Callable[..., Night]:
    def decide(source: numpy.random.Generator) -> Night:
        p = probabilities(source)
        before = run_of(source, p, 20 * ITERATIONS)
        differences = run_of(source, fallen(p, drop)) - before
        if early:
            return early_difference(margin, differences, against_history)
        return against_history(differences, margin)

    return decide


def drift_night(drop: float, nights: int = 1) -> Callable[..., Night]:
    """Return a night after 30 others; the score has fallen by `drop` for `nights` of them."""

    def decide(source: numpy.random.Generator) -> Night:
        p = probabilities(source)
        means = [float(run_of(source, p).mean()) for _ in range(31 - nights)]
        means += [float(run_of(source, fallen(p, drop)).mean()) for _ in range(nights)]
        rows = [
            ("b", None if number == 30 else f"run-{number}", CASES, mean, mean, None, None)
            for number, mean in enumerate(means)
        ]
        gate = NoDrift()
        return Night(gate.decide(summary_of(gate, rows, 30), POLICY).outcome)

    return decide


def naive_night(drop: float) -> Callable[..., Night]:
    """Return a night by the rule "the pass rate is below that of the night before"."""

    def decide(source: numpy.random.Generator) -> Night:
        p = probabilities(source)
        fell = run_of(source, fallen(p, drop)).mean() < run_of(source, p).mean()
        return Night(GateOutcome.FAIL if fell else GateOutcome.PASS)

    return decide


def suite_night(rate: float, threshold: float, *, wrong: bool) -> Callable[..., Night]:
    """Return a night of `pass_rate` that stops early on a suite with this rate.

    With `wrong` the outcome is `fail` if it is not that of the whole suite, else `pass`.
    """

    def decide(source: numpy.random.Generator) -> Night:
        values = source.permutation(numpy.arange(CASES) < round(rate * CASES)).astype(float)
        night = stopped(SequentialRule(CaseValue.PASSED, threshold, ALPHA), values)
        right = GateOutcome.PASS if rate >= threshold else GateOutcome.FAIL
        if night is None:
            night = Night(right)
        if not wrong:
            return night
        return night._replace(
            outcome=GateOutcome.PASS if night.outcome is right else GateOutcome.FAIL
        )

    return decide


def new_failures_night(
    broken: int = 0, *, iterations: int = ITERATIONS, runs: int = 20, steady: bool = False
) -> Callable[..., Night]:
    """Return a night after `runs` others in which as many cases that always passed break.

    The cases of a `steady` suite pass in 999 of 1 000 runs.
    """

    def decide(source: numpy.random.Generator) -> Night:
        p = numpy.full(CASES, 0.999) if steady else probabilities(source)
        passes = source.binomial(iterations, p, (runs + 1, CASES))
        passes[-1, numpy.flatnonzero((passes == iterations).all(axis=0))[:broken]] = 0
        gate = NoNewFailures()
        rows = new_failure_rows(gate, passes, iterations)
        return Night(gate.decide(summary_of(gate, rows, runs), POLICY).outcome)

    return decide


def new_failure_rows(gate: NoNewFailures, passes: Array, iterations: int) -> list[Any]:
    """Return what the gate's query says of passes by run (this one the last) and case."""
    passed, mixed = passes == iterations, (passes > 0) & (passes < iterations)
    before, now = passed[:-1], passed[-1]
    wavered = mixed[:-1].any(axis=0) | (before[1:] != before[:-1]).any(axis=0)
    steady = before[-int(gate.runs) :].all(axis=0)
    failed_once = ((~before).sum(axis=0) == 1) & ((passes[:-1] == 0).sum(axis=0) == 1) & now
    return [
        (
            "b",
            f"case-{case}",
            True,
            wavered[case] or mixed[-1, case],
            steady[case],
            False,
            int(failed_once.sum()),
        )
        for case in numpy.flatnonzero(~now)
    ]


def reliable_night(shift: float, *, wrong: bool) -> Callable[..., Night]:
    """Return a night of `reliable` that stops early; the suite is `shift` above the threshold."""

    def decide(source: numpy.random.Generator) -> Night:
        passes = source.binomial(ITERATIONS, probabilities(source))
        values = numpy.array([pass_all_k(ITERATIONS, int(count), 2) for count in passes])
        threshold = float(values.mean()) - shift
        rule = Reliable(2, threshold).sequential
        right = GateOutcome.PASS if shift >= 0 else GateOutcome.FAIL
        night = stopped(rule, source.permutation(values)) or Night(right)
        if not wrong:
            return night
        return night._replace(
            outcome=GateOutcome.PASS if night.outcome is right else GateOutcome.FAIL
        )

    return decide


def regressions_night(drop: float = 0.0) -> Callable[..., Night]:
    """Return a night by the settled regressions of passes that `no_regressions` counts."""

    def decide(source: numpy.random.Generator) -> Night:
        p = probabilities(source)
        was = source.binomial(ITERATIONS, p)
        now = source.binomial(ITERATIONS, numpy.clip(fallen(p, drop), 0, 1))
        flipped = int(((was == ITERATIONS) & (now == 0)).sum())
        worse = int(((was == ITERATIONS) & (now < ITERATIONS)).sum())
        kind = DifferenceKind.ASSERTION
        measured = {CaseState.MEASURED: CASES}
        candidate = VariantComparison(
            "b",
            "a",
            None,
            measured,
            measured,
            CASES,
            compared=CASES,
            regression_kinds={kind: worse},
            unsettled_kinds={kind: worse - flipped},
            unsettled=Unsettled("case", 3, 3, 2, 3, ALPHA / CASES),
        )
        summary = Summary(
            Counts(planned=CASES, completed=CASES),
            CASES,
            0,
            0.8,
            comparison=Comparison((candidate,)),
        )
        return Night(NoRegressions().decide(summary, POLICY).outcome)

    return decide


def auto_suite_night(rate: float, threshold: float, *, wrong: bool) -> Callable[..., Night]:
    """Return a night of `score_at_least` with `--iterations auto:8` on a suite with this rate.

    Its cases run are the share of the iterations that were executed. With `wrong` the outcome is
    `fail` if it is not what all iterations would say, else `pass`.
    """

    def decide(source: numpy.random.Generator) -> Night:
        p = source.beta(2, 0.5, CASES)
        p = numpy.clip(p * (rate / p.mean()), 0, 1)
        scores = source.random((AUTO_MOST, CASES)) < p
        rule = SequentialRule(CaseValue.SCORE, threshold, ALPHA)
        gates = RoundGates({0: rule}, [""], None, AUTO_MOST)
        for values in scores:
            gates.add([RoundItem(i, "", "", float(x), float(x)) for i, x in enumerate(values)], ())
        outcome = gates.gates[0].outcome or GateOutcome.INCONCLUSIVE
        if wrong:
            whole = GateOutcome.PASS if scores.mean() >= threshold - 1e-9 else GateOutcome.FAIL
            outcome = GateOutcome.PASS if outcome is whole else GateOutcome.FAIL
        return Night(outcome, round(CASES * gates.rounds / AUTO_MOST))

    return decide


def auto_variant_night(drop: float, margin: float) -> Callable[..., Night]:
    """Return a night of `no_significant_regression` with `--iterations auto:8`."""

    def decide(source: numpy.random.Generator) -> Night:
        p = probabilities(source)
        now = source.random((AUTO_MOST, CASES)) < numpy.clip(fallen(p, drop), 0, 1)
        before = source.random((AUTO_MOST, CASES)) < p
        rule = SequentialRule(CaseValue.DIFFERENCE, -margin, ALPHA / 2, per_variant=True)
        gates = RoundGates({0: rule}, ["a", "b"], "a", AUTO_MOST)
        sums = numpy.zeros(CASES)
        for number in range(AUTO_MOST):
            sums += now[number].astype(float) - before[number]
            means = sums / (number + 1)
            items = [RoundItem(i, "b", "", float(x), None) for i, x in enumerate(now[number])]
            gates.add(items, [SeenValue(i, rule.value, "b", float(x)) for i, x in enumerate(means)])
            if gates.decided:
                break
        outcome = gates.gates[0].outcome or against_variant(means, margin).outcome
        return Night(outcome, round(CASES * gates.rounds / AUTO_MOST))

    return decide
