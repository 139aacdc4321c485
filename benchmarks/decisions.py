"""How often gates are wrong, and what they find: 2 000 simulated nights for each.

    uv run python -m benchmarks.decisions [--nights N] [--seed N] [--dry]

A night is a run of 400 cases × 3 iterations. Case i passes with probability p_i ~ Beta(8, 2), so
that the mean is 0.8. A false alarm is a gate that fails although the score has not fallen by more
than the gate's margin (simulated at the margin itself, where it is most frequent); a false pass is
one that passes there. The decisions are those of the gates' own classes. Exit code 1 if a gate is
wrong more often than its α + 2 standard errors, or finds a drop of 5 points in less than 80 %.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy

from benchmarks.measure import Row, machine, table, write_section
from evalcore.gates.comparing import NoSignificantRegression
from evalcore.gates.drift import NoDrift
from evalcore.gates.over_time import NoDropFromHistory
from evalcore.gates.sequential import CaseValue, SeenValue, SequentialGate, SequentialRule
from evalcore.model.comparison import CaseState, Comparison, Paired, VariantComparison
from evalcore.model.gate import GateOutcome
from evalcore.model.past import PastRuns
from evalcore.model.suite import Policy, ScoreRule
from evalcore.model.summary import Counts, Summary, VariantSummary

CASES, ITERATIONS = 400, 3
ALPHA = 0.05
_MEANING = (
    "A night is a run of 400 cases × 3 iterations, mean pass rate 0.8. At the margin a gate that "
    "fails or passes is wrong. `cases run` is what early stopping leaves of them."
)
POLICY = Policy(ScoreRule.WEIGHTED, ())
Array = Any


class Night(NamedTuple):
    """What a gate decided, and after how many of the cases."""

    outcome: GateOutcome
    cases: int = CASES


class Claim(NamedTuple):
    """A gate on simulated nights: which outcome is counted, and the bound that has to hold."""

    gate: str
    nights: str
    counted: GateOutcome
    decide: Callable[[numpy.random.Generator], Night]
    at_most: float | None = None
    at_least: float | None = None


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


FAIL, PASS = GateOutcome.FAIL, GateOutcome.PASS
REGRESSION, HISTORY = "no_significant_regression", "no_drop_from_history"
CLAIMS = (
    Claim("pass rate fell (naive)", "unchanged", FAIL, naive_night(0.0)),
    Claim(REGRESSION, "unchanged, margin 0", FAIL, variant_night(0, 0), ALPHA),
    Claim(REGRESSION, "2 points worse, margin 2", FAIL, variant_night(0.02, 0.02), ALPHA),
    Claim(REGRESSION, "2 points worse, margin 2", PASS, variant_night(0.02, 0.02), ALPHA),
    Claim(
        f"{REGRESSION}, stopped early",
        "unchanged, margin 0",
        FAIL,
        variant_night(0, 0, early=True),
        ALPHA,
    ),
    Claim(
        f"{REGRESSION}, stopped early",
        "2 points worse, margin 2",
        FAIL,
        variant_night(0.02, 0.02, early=True),
        ALPHA,
    ),
    Claim(
        f"{REGRESSION}, stopped early",
        "2 points worse, margin 2",
        PASS,
        variant_night(0.02, 0.02, early=True),
        ALPHA,
    ),
    Claim(HISTORY, "2 points worse, margin 2", FAIL, history_night(0.02, 0.02), ALPHA),
    Claim(HISTORY, "2 points worse, margin 2", PASS, history_night(0.02, 0.02), ALPHA),
    Claim(
        f"{HISTORY}, stopped early",
        "2 points worse, margin 2",
        FAIL,
        history_night(0.02, 0.02, early=True),
        ALPHA,
    ),
    Claim("no_drift", "unchanged, 30 runs before", FAIL, drift_night(0.0), ALPHA),
    Claim(
        "pass_rate=0.8, stopped early",
        "suite at 0.80: not as the whole suite",
        FAIL,
        suite_night(0.80, 0.8, wrong=True),
        ALPHA,
    ),
    Claim(
        "pass_rate=0.8, stopped early",
        "suite at 0.79: not as the whole suite",
        FAIL,
        suite_night(0.79, 0.8, wrong=True),
        ALPHA,
    ),
    Claim("pass rate fell (naive)", "5 points worse", FAIL, naive_night(0.05)),
    Claim(REGRESSION, "5 points worse, margin 0", FAIL, variant_night(0.05, 0), at_least=0.8),
    Claim(
        f"{REGRESSION}, stopped early",
        "5 points worse, margin 0",
        FAIL,
        variant_night(0.05, 0, early=True),
        at_least=0.8,
    ),
    Claim(HISTORY, "5 points worse, margin 0", FAIL, history_night(0.05, 0), at_least=0.8),
    Claim(HISTORY, "5 points worse, margin 2", FAIL, history_night(0.05, 0.02)),
    Claim("no_drift", "5 points worse, the first night", FAIL, drift_night(0.05)),
    Claim("no_drift", "5 points worse, the third night", FAIL, drift_night(0.05, 3)),
    Claim(
        f"{REGRESSION}, stopped early",
        "15 points worse, margin 2",
        FAIL,
        variant_night(0.15, 0.02, early=True),
    ),
    Claim(
        "pass_rate=0.8, stopped early", "suite at 0.95", PASS, suite_night(0.95, 0.8, wrong=False)
    ),
    Claim(
        "pass_rate=0.8, stopped early", "suite at 0.60", FAIL, suite_night(0.60, 0.8, wrong=False)
    ),
)


def holds(claim: Claim, share: float, nights: int) -> bool:
    if claim.at_most is not None:
        return share <= claim.at_most + 2 * math.sqrt(claim.at_most * (1 - claim.at_most) / nights)
    return claim.at_least is None or share >= claim.at_least


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    began = time.monotonic()
    rows: list[Row] = []
    for number, claim in enumerate(CLAIMS):
        source = numpy.random.default_rng([options.seed, number])
        nights = [claim.decide(source) for _ in range(options.nights)]
        share = sum(night.outcome is claim.counted for night in nights) / len(nights)
        used = sum(night.cases for night in nights) / len(nights) / CASES
        holds_bound = holds(claim, share, options.nights)
        bound = "–"
        if claim.at_most is not None:
            bound = f"≤ {claim.at_most:.1%} + 2 SE"
        if claim.at_least is not None:
            bound = f"≥ {claim.at_least:.0%}"
        cells = claim.gate, claim.nights, str(claim.counted), f"{share:.1%}", bound, f"{used:.0%}"
        rows.append(Row(cells, "" if holds_bound else "beyond the bound"))
        print(" | ".join((*cells, rows[-1].verdict)), flush=True)
    took = f"{options.nights} nights each, seed {options.seed}, {time.monotonic() - began:.0f} s"
    header = ("rule", "nights", "counted", "share", "bound", "cases run")
    if not options.dry:
        intro = f"`uv run python -m benchmarks.decisions`, {took}, {machine()}. {_MEANING}"
        write_section("decisions", f"## Decisions\n\n{intro}\n\n{table(header, rows)}")
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
