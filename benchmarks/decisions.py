"""How often gates are wrong, and what they find: 2 000 simulated nights for each claim.

    uv run python -m benchmarks.decisions [--nights N] [--seed N] [--only SECTION] [--dry]

A night is a run; without another size it has 400 cases × 3 iterations. Case i passes with
probability p_i ~ Beta(8, 2), so that the mean is 0.8. A false alarm is a gate that fails although
the score has not fallen by more than the gate's margin (simulated at the margin itself, where it is
most frequent); a false pass is one that passes there. The decisions are those of the gates' own
classes. Exit code 1 if a gate is wrong more often than its α + 2 standard errors, finds a drop of 5
points in less than 80 %, or a stated sample size decides in less than 75 % or more than 85 %.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import Any, NamedTuple

import numpy

from benchmarks.measure import Row, machine, table, write_section
from benchmarks.nights import (
    ALPHA,
    THRESHOLD,
    Decide,
    Night,
    Size,
    auto_difference_night,
    auto_suite_night,
    clusters,
    difference_night,
    drift_night,
    fell,
    naive_night,
    new_failures_night,
    passes,
    passes_of_variants,
    regressions_night,
    reliabilities,
    scores,
    shifted,
    steady,
    suite_night,
)
from benchmarks.stated_sizes import (
    binary,
    graded,
    power_night,
    stated_difference_night,
    stated_iterations_night,
    stated_threshold_night,
)
from evalcore.gates.builtin import PassRate, ScoreAtLeast
from evalcore.gates.over_time import Reliable
from evalcore.model.run import GateOutcome

_MEANING = (
    "A night is a run of 400 cases × 3 iterations, mean pass rate 0.8, unless it says another "
    "size. At the margin a gate that fails or passes is wrong. `run` is what early stopping leaves "
    "of the cases, with `auto:8` what is executed of 8 iterations of them."
)
_SECTIONS = {
    "decisions": "Decisions",
    "decisions-auto": "Decisions with iterations that are added",
}


class Claim(NamedTuple):
    """A gate on simulated nights: which outcome is counted, and the bounds that have to hold.

    An upper bound alone is a level: the share may exceed it by 2 standard errors.
    """

    gate: str
    nights: str
    counted: GateOutcome
    decide: Decide
    at_most: float | None = None
    at_least: float | None = None

    @property
    def bound(self) -> str:
        if self.at_most is not None and self.at_least is not None:
            return f"{self.at_least:.0%} to {self.at_most:.0%}"
        if self.at_most is not None:
            return f"≤ {self.at_most:.1%} + 2 SE"
        return "–" if self.at_least is None else f"≥ {self.at_least:.0%}"

    def holds(self, share: float, nights: int) -> bool:
        most = self.at_most
        if most is not None and self.at_least is None:
            most += 2 * math.sqrt(most * (1 - most) / nights)
        return (self.at_least or 0.0) <= share <= (1.0 if most is None else most)


FAIL, PASS = GateOutcome.FAIL, GateOutcome.PASS
REGRESSION, HISTORY = "no_significant_regression", "no_drop_from_history"
GATES = {REGRESSION: False, HISTORY: True}
DETECTED_SHARE, STATED = 0.8, (0.85, 0.75)
NAIVE = "pass rate fell (naive)"
NEW = "no_new_failures"
NOT_AS_WHOLE = "not as the whole suite"


def wrong(gate: str, nights: str, draw: Any, margin: float, **options: Any) -> list[Claim]:
    """Return the claims of a gate on differences whose mean is the margin: it neither fails
    nor passes."""
    decide = difference_night(draw, margin, history=GATES[gate], **options)
    name = f"{gate}, stopped early" if options.get("early") else gate
    return [Claim(name, nights, counted, decide, ALPHA) for counted in (FAIL, PASS)]


def differences() -> list[Claim]:
    """Return the claims of the gates on differences, at their margin."""
    claims = []
    for gate, past in GATES.items():
        for cases in (50, 200, 400):
            size, worse = Size(cases), "2 points worse, margin 2"
            steady_one, noisy = Size(cases, iterations=1), steady(0.02, flicker=0.01)
            claims += [
                *wrong(gate, f"{cases} cases, {worse}", fell(0.02, past=past), 0.02, size=size),
                *wrong(gate, f"{cases} cases, 2 % lost", steady(0.02), 0.02, size=steady_one),
                *wrong(gate, f"{cases} noisy cases, 2 % lost", noisy, 0.02, size=size),
            ]
        for candidates in (3, 10):
            for cases in (50, 400):
                size, name = Size(cases, candidates), f"{candidates} candidates, {cases} cases"
                draw = fell(0.02, past=past)
                claims += wrong(gate, f"{name}, all at the margin", draw, 0.02, size=size)
        size = Size(50, 10, iterations=1)
        name = "10 candidates, 50 cases, 2 % lost"
        claims += wrong(gate, name, steady(0.02), 0.02, size=size)
        for units in (16, 40):
            size, name = Size(25 * units, cluster=25), f"{units} clusters of 25"
            claims += [
                *wrong(gate, f"{name}, 12 % lost, 10 % won", clusters(0.12, 0.1), 0.02, size=size),
                *wrong(gate, f"{name}, 2 % lost", clusters(0.02, 0), 0.02, size=size),
                *wrong(gate, f"{name}, shifted", shifted(0.02), 0.02, size=size),
            ]
        size = Size(400, 10, cluster=25)
        name = "10 candidates, 16 clusters of 25, shifted"
        claims += wrong(gate, name, shifted(0.02), 0.02, size=size)
        size = Size(50, cluster=5)
        claims += wrong(gate, "10 clusters of 5, shifted", shifted(0.02), 0.02, size=size)
        for cases in (50, 400):
            early = {"size": Size(cases), "early": True}
            name = f"{cases} cases, 2 points worse, margin 2"
            claims += [
                *wrong(gate, name, fell(0.02, past=past), 0.02, **early),
                *wrong(gate, f"{cases} noisy cases, 2 % lost", steady(0.02, 0.01), 0.02, **early),
            ]
        early = {"size": Size(100, 10), "early": True}
        name = "10 candidates, 100 cases, all at the margin"
        claims += wrong(gate, name, fell(0.02, past=past), 0.02, **early)
        early = {"size": Size(400, cluster=25), "early": True}
        claims += wrong(gate, "16 clusters of 25, shifted", shifted(0.02), 0.02, **early)
    return claims


def suites() -> list[Claim]:
    """Return the claims of gates on the whole suite that stop early."""
    claims = []
    for name, draw, gate in (
        ("pass_rate", passes(0.8), PassRate),
        ("pass_rate, 1 or 3 variants of a case", passes_of_variants, PassRate),
        ("score_at_least", scores, ScoreAtLeast),
        ("reliable=2", reliabilities, lambda threshold: Reliable(2, threshold)),
    ):
        for cases in (50, 400):
            for shift, where in ((0.0, "at"), (-0.01, "1 point below")):
                decide = suite_night(draw, gate, shift, wrong=True, cases=cases)
                nights = f"{cases} cases, {where} the threshold: {NOT_AS_WHOLE}"
                claims.append(Claim(f"{name}, stopped early", nights, FAIL, decide, ALPHA))
    return claims


def stated() -> list[Claim]:
    """Return the claims of sizes that remedies and `plan --power` state."""
    small, clustered = Size(200), Size(200, cluster=5)
    few = Size(60, cluster=5)
    claims = [
        Claim(f"remedy of {REGRESSION}", nights, counted, decide, *STATED)
        for nights, counted, decide in (
            ("unchanged, margin 3", PASS, stated_difference_night(fell(0), 0.03, small)),
            ("5 points worse, margin 2", FAIL, stated_difference_night(fell(0.05), 0.02, small)),
            (
                "1 % lost, margin 2",
                PASS,
                stated_difference_night(steady(0.01), 0.02, Size(100, iterations=1)),
            ),
            (
                "40 clusters of 5, 8 points worse, margin 2",
                FAIL,
                stated_difference_night(shifted(0.05), 0.02, clustered),
            ),
            (
                "12 clusters of 5, 10 points worse, margin 2",
                FAIL,
                stated_difference_night(shifted(0.1), 0.02, few),
            ),
        )
    ]
    for nights, decide in (
        ("unchanged, margin 3: iterations", stated_iterations_night(fell(0), 0.03, small)),
        (
            "rare noise, margin 1.5: iterations",
            stated_iterations_night(steady(0, 0.02), 0.015, Size(300)),
        ),
    ):
        claims.append(Claim(f"remedy of {REGRESSION}", nights, PASS, decide, *STATED))
    for name, size in (("200 cases", small), ("40 clusters", clustered), ("12 clusters", few)):
        for gate, draw, rule in (
            ("pass_rate=0.8", binary(0.75), PassRate(THRESHOLD)),
            ("score_at_least=0.8", graded(0.77), ScoreAtLeast(THRESHOLD)),
        ):
            decide = stated_threshold_night(draw, rule, size)
            claims.append(Claim(f"remedy of {gate}", f"{name}, below", FAIL, decide, *STATED))
    for nights, decide in (
        ("a drop of 5 points: cases needed", power_night(0.05, Size())),
        ("a drop of 10 points, margin 2: cases needed", power_night(0.1, Size(), 0.02)),
        ("the smallest drop of 400 cases", power_night(None, Size())),
        ("a drop of 10 points, clusters of 5: cases", power_night(0.1, Size(cluster=5))),
        ("the smallest drop of 16 clusters of 25", power_night(None, Size(cluster=25))),
    ):
        claims.append(Claim("plan --power", nights, FAIL, decide, *STATED))
    return claims


def automatic() -> list[Claim]:
    """Return the claims of `--iterations auto:8`."""
    score, rate = ScoreAtLeast(THRESHOLD), PassRate(THRESHOLD)
    worse = "2 points worse, margin 2"
    claims = [
        Claim(
            f"{name}, auto:8",
            f"suite at {at}: not as all iterations",
            FAIL,
            auto_suite_night(at, gate, wrong=True, variants=variants),
            ALPHA,
        )
        for name, gate, variants in (
            ("score_at_least=0.8", score, False),
            ("pass_rate=0.8, 1 or 3 variants of a case", rate, True),
        )
        for at in (0.80, 0.79)
    ]
    claims += [
        Claim(
            "score_at_least=0.8, auto:8",
            f"suite at {at}",
            counted,
            auto_suite_night(at, score, wrong=False),
        )
        for at, counted in ((0.85, PASS), (0.7, FAIL))
    ]
    claims += [
        Claim(f"{REGRESSION}, auto:8", nights, counted, auto_difference_night(*arguments), ALPHA)
        for nights, counted, arguments in (
            ("unchanged, margin 0", FAIL, (0, 0)),
            (worse, FAIL, (0.02, 0.02)),
            (worse, PASS, (0.02, 0.02)),
            (f"50 cases, 10 candidates, {worse}", FAIL, (0.02, 0.02, Size(50, 10))),
            (f"50 cases, {worse}", PASS, (0.02, 0.02, Size(50))),
        )
    ]
    outcomes = auto_difference_night(0.05, 0)
    far = auto_difference_night(0.08, 0.02)
    name = f"{REGRESSION}, auto:8"
    return [
        *claims,
        Claim(name, "5 points worse, margin 0", FAIL, outcomes, at_least=DETECTED_SHARE),
        Claim(name, "8 points worse, margin 2", FAIL, far),
    ]


CLAIMS = {
    "decisions": (
        Claim(NAIVE, "unchanged", FAIL, naive_night(0.0)),
        Claim("no_regressions (a rule without a level)", "unchanged", FAIL, regressions_night()),
        Claim(REGRESSION, "unchanged, margin 0", FAIL, difference_night(fell(0), 0), ALPHA),
        Claim(
            f"{REGRESSION}, stopped early",
            "unchanged, margin 0",
            FAIL,
            difference_night(fell(0), 0, early=True),
            ALPHA,
        ),
        *differences(),
        *suites(),
        *(
            Claim("no_drift", f"{n} cases, 30 runs before", FAIL, drift_night(0, cases=n), ALPHA)
            for n in (50, 400)
        ),
        *(
            Claim(NEW, f"{nights}, unchanged", FAIL, new_failures_night(**options), ALPHA)
            for nights, options in (
                ("20 runs before", {}),
                ("1 iteration, 20 runs before", {"iterations": 1}),
                ("1 iteration, 5 runs before", {"iterations": 1, "runs": 5}),
                ("50 cases, 1 iteration, 5 runs before", {"iterations": 1, "runs": 5, "cases": 50}),
                ("steady cases, 1 iteration", {"iterations": 1, "steady": True}),
            )
        ),
        Claim(NAIVE, "5 points worse", FAIL, naive_night(0.05)),
        *(
            Claim(
                f"{gate}, stopped early" if early else gate,
                "5 points worse, margin 0",
                FAIL,
                difference_night(fell(0.05, past=past), 0, history=past, early=early),
                at_least=DETECTED_SHARE,
            )
            for gate, past in GATES.items()
            for early in (False, True)
        ),
        Claim(NEW, "5 cases break", FAIL, new_failures_night(5), at_least=DETECTED_SHARE),
        Claim(
            NEW,
            "1 case of a steady suite breaks",
            FAIL,
            new_failures_night(1, steady=True),
            at_least=DETECTED_SHARE,
        ),
        Claim("no_drift", "5 points worse, the first night", FAIL, drift_night(0.05)),
        Claim("no_drift", "5 points worse, the third night", FAIL, drift_night(0.05, 3)),
        Claim(
            f"{REGRESSION}, stopped early",
            "15 points worse, margin 2",
            FAIL,
            difference_night(fell(0.15), 0.02, early=True),
        ),
        Claim(
            "pass_rate=0.8, stopped early",
            "suite at 0.95",
            PASS,
            suite_night(passes(0.95), PassRate, 0.15, wrong=False),
        ),
        Claim(
            "pass_rate=0.8, stopped early",
            "suite at 0.60",
            FAIL,
            suite_night(passes(0.6), PassRate, -0.2, wrong=False),
        ),
        *stated(),
    ),
    "decisions-auto": tuple(automatic()),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nights", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=_SECTIONS, help="the claims of one section")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    sections = [options.only] if options.only else list(_SECTIONS)
    missed = [section for section in sections if measure(section, options)]
    return 1 if missed else 0


def measure(section: str, options: argparse.Namespace) -> bool:
    """Simulate the claims of a section and write it; return whether one does not hold."""
    began = time.monotonic()
    rows: list[Row] = []
    nights: list[Night] = []
    for number, claim in enumerate(CLAIMS[section]):
        if not number or claim.decide is not CLAIMS[section][number - 1].decide:
            source = numpy.random.default_rng([options.seed, number])
            nights = [claim.decide(source) for _ in range(options.nights)]
        share = sum(night.outcome is claim.counted for night in nights) / len(nights)
        run = f"{sum(night.run for night in nights) / len(nights):.0%}"
        missed = "" if claim.holds(share, options.nights) else "beyond the bound"
        counted = str(claim.counted)
        cells = claim.gate, claim.nights, counted, f"{share:.1%}", claim.bound, run
        rows.append(Row(cells, missed))
        print(" | ".join((*cells, rows[-1].verdict)), flush=True)
    took = f"{options.nights} nights each, seed {options.seed}, {time.monotonic() - began:.0f} s"
    header = ("rule", "nights", "counted", "share", "bound", "run")
    if not options.dry:
        intro = f"`uv run python -m benchmarks.decisions`, {took}, {machine()}. {_MEANING}"
        write_section(section, f"## {_SECTIONS[section]}\n\n{intro}\n\n{table(header, rows)}")
    return any(bool(row.missed) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
