"""Simulated nights, and what the gates' own classes decide of them (benchmarks.decisions)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy

from evalcore.gates.comparing import NoRegressions, NoSignificantRegression
from evalcore.gates.gate import CaseValue, Gate, SequentialRule
from evalcore.gates.over_time import NoDrift, NoDropFromHistory, NoNewFailures
from evalcore.gates.sequential import RoundGates, RoundItem, SeenValue, SequentialGate
from evalcore.model.past import PastRuns
from evalcore.model.run import GateOutcome, GateResult
from evalcore.model.suite import Format, Policy, ScoreRule, Source, SuiteDefinition
from evalcore.model.summary import (
    CaseState,
    Comparison,
    Counts,
    DifferenceKind,
    Paired,
    Summary,
    UnitSums,
    Unsettled,
    VariantComparison,
    VariantSummary,
)
from evalcore.pipeline.early_stop import sequential_rules

CASES, ITERATIONS, PAST_RUNS = 400, 3, 20
AUTO_MOST = 8
ALPHA = 0.05
THRESHOLD = 0.8
POLICY = Policy(ScoreRule.WEIGHTED, ())
Array = Any
Rng = numpy.random.Generator


class Size(NamedTuple):
    """What is run: `cases` in clusters of `cluster`, `iterations`, and how many `candidates`."""

    cases: int = CASES
    candidates: int = 1
    cluster: int = 1
    iterations: int = ITERATIONS

    @property
    def units(self) -> int:
        return self.cases // self.cluster


WHOLE = Size()
Draw = Callable[[Rng, Size], Array]
Decide = Callable[[Rng], "Night"]


class Night(NamedTuple):
    """What a gate decided, and after which share of the planned items."""

    outcome: GateOutcome
    run: float = 1.0


def probabilities(source: Rng, cases: int = CASES) -> Array:
    return source.beta(8, 2, cases)


def run_of(source: Rng, p: Array, iterations: int = ITERATIONS) -> Array:
    """Return the scores of a night's cases: the share of iterations that passed."""
    return source.binomial(iterations, numpy.clip(p, 0, 1)) / iterations


def fallen(p: Array, drop: float) -> Array:
    """Return probabilities whose mean is lower by `drop`, each of them in proportion."""
    return p * (1 - drop / p.mean())


# What candidates score less than their baseline, by candidate and case.


def fell(drop: float, *, past: bool = False) -> Draw:
    """All cases are worse in proportion. `past`: each variant has its own past of 20 runs."""

    def draw(source: Rng, size: Size) -> Array:
        shape = (size.candidates, size.cases)
        p = probabilities(source, size.cases)
        now = run_of(source, numpy.broadcast_to(fallen(p, drop), shape), size.iterations)
        if past:
            was = numpy.broadcast_to(p, shape)
            return now - run_of(source, was, PAST_RUNS * size.iterations)
        return now - run_of(source, p, size.iterations)

    return draw


def steady(drop: float, flicker: float = 0.0) -> Draw:
    """The same share of cases is lost, the others pass but for rare failures of an iteration."""

    def draw(source: Rng, size: Size) -> Array:
        shape = (size.candidates, size.cases)
        now = run_of(source, numpy.full(shape, 1 - flicker), size.iterations)
        now[source.random(shape) < drop / (1 - flicker)] = 0
        return now - run_of(source, numpy.full(size.cases, 1 - flicker), size.iterations)

    return draw


def clusters(worse: float, better: float) -> Draw:
    """Whole clusters are lost or won: these shares of them."""

    def draw(source: Rng, size: Size) -> Array:
        chance = source.random((size.candidates, size.units))
        changed = (chance > 1 - better).astype(float) - (chance < worse)
        return changed.repeat(size.cluster, axis=1)

    return draw


def shifted(drop: float, by: float = 0.1) -> Draw:
    """Cases pass in 60 %; all of a cluster's change by `by` more or less than by −`drop`."""

    def draw(source: Rng, size: Size) -> Array:
        shifts = source.choice([by, -by], (size.candidates, size.units)) - drop
        now = run_of(source, 0.6 + shifts.repeat(size.cluster, axis=1), size.iterations)
        return now - run_of(source, numpy.full(size.cases, 0.6), size.iterations)

    return draw


def assumed(drop: float) -> Draw:
    """What `plan --power` assumes: variances 1/9 of the differences and 1/6 of iterations."""

    def draw(source: Rng, size: Size) -> Array:
        was = source.random(size.units)
        now = numpy.where(source.random(size.units) < 1 / 3, 1 - was, was)
        now, was = (p.repeat(size.cluster) for p in (fallen(now, drop), was))
        return (run_of(source, now, size.iterations) - run_of(source, was, size.iterations))[None]

    return draw


def sums_of(values: Array, cluster: int) -> tuple[float, UnitSums]:
    """Return the mean of values and the distances of the units from it."""
    # Sorted, so that equal samples are equal to the last digit, and decided once.
    values = numpy.sort(values.reshape(-1, cluster).sum(axis=1))
    mean = float(values.sum()) / len(values) / cluster
    totals = values - mean * cluster
    powers = float((totals**2).sum()), float((totals**4).sum())
    least, most = float(totals[0]), float(totals[-1])
    return mean, UnitSums(len(values), powers[0], least, most, powers[1])


def paired(differences: Array, cluster: int = 1) -> Paired:
    mean, sums = sums_of(differences, cluster)
    return Paired(len(differences), mean, sums, cluster > 1)


def summary_of(gate: Any, rows: Sequence[Any], runs: int, cases: int = CASES) -> Summary:
    past = PastRuns(tuple(f"run-{number}" for number in range(runs)))
    counts = Counts(planned=cases, completed=cases, passed=cases)
    return Summary(counts, cases, cases, 0.8, past=past, gate_rows={gate.key: tuple(rows)})


def difference_gate(margin: float, *, history: bool) -> Any:
    if history:
        return NoDropFromHistory(PAST_RUNS, margin, ALPHA)
    return NoSignificantRegression(margin, ALPHA)


@lru_cache(maxsize=100_000)
def compared(candidates: tuple[Paired, ...], margin: float, *, history: bool) -> GateResult:
    """Return what the gate says of the candidates' differences."""
    gate, names = difference_gate(margin, history=history), candidate_names(len(candidates))
    cases = candidates[0].cases
    if history:
        rows = [
            (name, each.cases, 0, each.mean, each.clustered, *each.sums)
            for name, each in zip(names, candidates, strict=True)
        ]
        return gate.decide(summary_of(gate, rows, PAST_RUNS, cases), POLICY)
    measured = {CaseState.MEASURED: cases}
    comparisons = tuple(
        VariantComparison(name, "a", None, measured, measured, cases, compared=cases, paired=each)
        for name, each in zip(names, candidates, strict=True)
    )
    variants = tuple(VariantSummary(name, cases, 0, 0.8) for name in names)
    summary = Summary(
        Counts(), cases, 0, 0.8, variants=variants, comparison=Comparison(comparisons)
    )
    return gate.decide(summary, POLICY)


def candidate_names(candidates: int) -> list[str]:
    return [f"b{number}" for number in range(candidates)]


def early_rule(gate: Gate, size: Size) -> SequentialRule | None:
    """Return the rule of a gate in a suite of this size; None if it needs the whole run."""
    policy = Policy(ScoreRule.WEIGHTED, (gate.spec,), cluster="c" if size.cluster > 1 else None)
    definition = SuiteDefinition("nights", Format.SUITE, Source("nights", "", ""), policy)
    return sequential_rules(definition).get(0)


def stopped(rule: SequentialRule, names: Sequence[str], values: Array, counts: Any = None) -> Any:
    """Return the night of a run that stops early; None if it goes to its end.

    `values` are by variant and case; `counts` say how many variants a case's sum is of.
    """
    gate = SequentialGate(rule, names, values.shape[1])
    listed_names = names if rule.per_variant else [""]
    for number, of_case in enumerate(values.T.tolist()):
        variants = 1 if counts is None else int(counts[number])
        gate.add(
            SeenValue(number, rule.value, name, value, variants)
            for name, value in zip(listed_names, of_case, strict=True)
        )
        if gate.outcome is not None:
            return Night(gate.outcome, (number + 1) / values.shape[1])
    return None


def difference_night(
    draw: Draw,
    margin: float,
    size: Size = WHOLE,
    *,
    history: bool = False,
    early: bool = False,
) -> Decide:
    """Return a night of `no_significant_regression`, or of `no_drop_from_history`."""
    gate = difference_gate(margin, history=history)
    rule = early_rule(gate, size) if early else None

    def decide(source: Rng) -> Night:
        differences = draw(source, size)
        if rule is not None:
            night = stopped(rule, candidate_names(size.candidates), differences)
            if night is not None:
                return night
        samples = tuple(paired(each, size.cluster) for each in differences)
        return Night(compared(samples, margin, history=history).outcome)

    return decide


def drift_night(drop: float, nights: int = 1, cases: int = CASES) -> Decide:
    """Return a night after 30 others; the score has fallen by `drop` for `nights` of them."""

    def decide(source: Rng) -> Night:
        p = probabilities(source, cases)
        means = [float(run_of(source, p).mean()) for _ in range(31 - nights)]
        means += [float(run_of(source, fallen(p, drop)).mean()) for _ in range(nights)]
        rows = [
            ("b", None if number == 30 else f"run-{number}", cases, mean, mean, None, None)
            for number, mean in enumerate(means)
        ]
        gate = NoDrift()
        return Night(gate.decide(summary_of(gate, rows, 30, cases), POLICY).outcome)

    return decide


def naive_night(drop: float) -> Decide:
    """Return a night by the rule "the pass rate is below that of the night before"."""

    def decide(source: Rng) -> Night:
        p = probabilities(source)
        fell = run_of(source, fallen(p, drop)).mean() < run_of(source, p).mean()
        return Night(GateOutcome.FAIL if fell else GateOutcome.PASS)

    return decide


def new_failures_night(
    broken: int = 0,
    *,
    iterations: int = ITERATIONS,
    runs: int = PAST_RUNS,
    steady: bool = False,
    cases: int = CASES,
) -> Decide:
    """Return a night after `runs` others in which as many cases that always passed break.

    The cases of a `steady` suite pass in 999 of 1 000 runs.
    """

    def decide(source: Rng) -> Night:
        p = numpy.full(cases, 0.999) if steady else probabilities(source, cases)
        passes = source.binomial(iterations, p, (runs + 1, cases))
        passes[-1, numpy.flatnonzero((passes == iterations).all(axis=0))[:broken]] = 0
        gate = NoNewFailures()
        rows = new_failure_rows(gate, passes, iterations)
        return Night(gate.decide(summary_of(gate, rows, runs, cases), POLICY).outcome)

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


def regressions_night(drop: float = 0.0) -> Decide:
    """Return a night by the settled regressions of passes that `no_regressions` counts."""

    def decide(source: Rng) -> Night:
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


# The values of all cases of a suite, and how many variants each one sums up.
Population = Callable[[Rng, int], tuple[Array, Array]]


def passes(rate: float) -> Population:
    """Cases that pass or fail, in exactly this share."""

    def draw(source: Rng, cases: int) -> tuple[Array, Array]:
        values = source.permutation(numpy.arange(cases) < round(rate * cases)).astype(float)
        return values, numpy.ones(cases)

    return draw


def passes_of_variants(source: Rng, cases: int) -> tuple[Array, Array]:
    """Cases of one variant, and harder ones of three."""
    variants = source.choice([1, 3], cases)
    return source.binomial(variants, numpy.where(variants == 1, 0.95, 0.7)).astype(float), variants


def scores(source: Rng, cases: int) -> tuple[Array, Array]:
    return run_of(source, probabilities(source, cases)), numpy.ones(cases)


def reliabilities(source: Rng, cases: int) -> tuple[Array, Array]:
    """Pass^2 of three iterations."""
    passed = source.binomial(ITERATIONS, probabilities(source, cases))
    values = [math.comb(int(count), 2) / math.comb(ITERATIONS, 2) for count in passed]
    return numpy.array(values), numpy.ones(cases)


def suite_night(
    draw: Population,
    gate: Callable[[float], Gate],
    shift: float,
    *,
    wrong: bool,
    cases: int = CASES,
) -> Decide:
    """Return a night that stops early of a gate on a suite, which is `shift` above its threshold.

    With `wrong` the outcome is `fail` if it is not that of the whole suite, else `pass`.
    """

    def decide(source: Rng) -> Night:
        values, variants = draw(source, cases)
        threshold = min(max(float(values.sum() / variants.sum()) - shift, 0.0), 1.0)
        rule = early_rule(gate(threshold), Size(cases))
        right = GateOutcome.PASS if shift >= 0 else GateOutcome.FAIL
        names = candidate_names(int(variants.max()))
        night = stopped(rule, names, values[None], variants) or Night(right)
        return not_as(right, night) if wrong else night

    return decide


def not_as(right: GateOutcome, night: Night) -> Night:
    """Return the night with the outcome `fail` if it is not the right one, else `pass`."""
    return night._replace(outcome=GateOutcome.PASS if night.outcome is right else GateOutcome.FAIL)


def auto_suite_night(rate: float, gate: Gate, *, wrong: bool, variants: bool = False) -> Decide:
    """Return a night with `--iterations auto:8` of a gate with the threshold 0.8.

    With `wrong` the outcome is `fail` if it is not what all iterations would say, else `pass`.
    With `variants` half of the cases have two more variants.
    """

    def decide(source: Rng) -> Night:
        names = ["a", "b", "c"] if variants else ["a"]
        keys = [(case, name) for case in range(CASES) for name in names[: 1 if case % 2 else 3]]
        p = source.beta(2, 0.5, len(keys))
        p = numpy.clip(p * (rate / p.mean()), 0, 1)
        passed = source.random((AUTO_MOST, len(keys))) < p
        rounds = RoundGates({0: gate.sequential}, names, None, AUTO_MOST)
        for values in passed.astype(float).tolist():
            items = [
                RoundItem(case, name, "", value, value)
                for (case, name), value in zip(keys, values, strict=True)
            ]
            rounds.add(items, ())
        whole = GateOutcome.PASS if passed.mean() >= THRESHOLD - 1e-9 else GateOutcome.FAIL
        night = Night(rounds.gates[0].outcome or GateOutcome.INCONCLUSIVE, share_of(rounds))
        return not_as(whole, night) if wrong else night

    return decide


def share_of(rounds: RoundGates) -> float:
    return rounds.rounds / AUTO_MOST


def auto_difference_night(drop: float, margin: float, size: Size = WHOLE) -> Decide:
    """Return a night of `no_significant_regression` with `--iterations auto:8`."""
    gate = NoSignificantRegression(margin, ALPHA)
    rule = early_rule(gate, size)
    names = candidate_names(size.candidates)

    def decide(source: Rng) -> Night:
        p = probabilities(source, size.cases)
        shape = (AUTO_MOST, size.candidates, size.cases)
        now = source.random(shape) < numpy.clip(fallen(p, drop), 0, 1)
        was = source.random((AUTO_MOST, 1, size.cases)) < p
        means = (now * 1.0 - was).cumsum(axis=0) / numpy.arange(1, AUTO_MOST + 1)[:, None, None]
        rounds = RoundGates({} if rule is None else {0: rule}, ["a", *names], "a", AUTO_MOST)
        for number in range(AUTO_MOST):
            items, values = [], []
            for index, name in enumerate(names):
                scores, differences = now[number, index].tolist(), means[number, index].tolist()
                items += [RoundItem(i, name, "", float(x), None) for i, x in enumerate(scores)]
                values += [
                    SeenValue(i, CaseValue.DIFFERENCE, name, x) for i, x in enumerate(differences)
                ]
            rounds.add(items, values)
            if rounds.decided:
                return Night(rounds.gates[0].outcome or GateOutcome.INCONCLUSIVE, share_of(rounds))
        samples = tuple(paired(each, size.cluster) for each in means[-1])
        return Night(compared(samples, margin, history=False).outcome)

    return decide
