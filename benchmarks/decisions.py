"""How often gates are wrong, and what they find: 2 000 simulated nights for each.

    uv run python -m benchmarks.decisions [--nights N] [--seed N] [--only SECTION] [--dry]

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
from collections.abc import Callable
from typing import NamedTuple

import numpy

from benchmarks.measure import Row, machine, table, write_section
from benchmarks.nights import (
    ALPHA,
    CASES,
    Night,
    auto_suite_night,
    auto_variant_night,
    drift_night,
    history_night,
    naive_night,
    new_failures_night,
    regressions_night,
    reliable_night,
    suite_night,
    variant_night,
)
from evalcore.model.gate import GateOutcome

_MEANING = (
    "A night is a run of 400 cases × 3 iterations, mean pass rate 0.8. At the margin a gate that "
    "fails or passes is wrong. `cases run` is what early stopping leaves of them, "
    "with `auto:8` what is executed of 8 iterations of them."
)
_SECTIONS = {
    "decisions": "Decisions",
    "decisions-auto": "Decisions with iterations that are added",
}


class Claim(NamedTuple):
    """A gate on simulated nights: which outcome is counted, and the bound that has to hold."""

    gate: str
    nights: str
    counted: GateOutcome
    decide: Callable[[numpy.random.Generator], Night]
    at_most: float | None = None
    at_least: float | None = None


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
    Claim("no_new_failures", "unchanged, 20 runs before", FAIL, new_failures_night(), ALPHA),
    Claim(
        "no_new_failures",
        "unchanged, 1 iteration, 20 runs before",
        FAIL,
        new_failures_night(iterations=1),
        ALPHA,
    ),
    Claim(
        "no_new_failures",
        "unchanged, 1 iteration, 5 runs before",
        FAIL,
        new_failures_night(iterations=1, runs=5),
        ALPHA,
    ),
    Claim(
        "no_new_failures",
        "unchanged, steady cases, 1 iteration",
        FAIL,
        new_failures_night(iterations=1, steady=True),
        ALPHA,
    ),
    Claim(
        "reliable=2, stopped early",
        "suite at the threshold: not as the whole suite",
        FAIL,
        reliable_night(0.0, wrong=True),
        ALPHA,
    ),
    Claim(
        "reliable=2, stopped early",
        "suite 1 point below: not as the whole suite",
        FAIL,
        reliable_night(-0.01, wrong=True),
        ALPHA,
    ),
    Claim("no_regressions (a rule without a level)", "unchanged", FAIL, regressions_night()),
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
    Claim("no_new_failures", "5 cases break", FAIL, new_failures_night(5), at_least=0.8),
    Claim(
        "no_new_failures",
        "1 case of a steady suite breaks",
        FAIL,
        new_failures_night(1, steady=True),
        at_least=0.8,
    ),
    Claim("reliable=2, stopped early", "20 points below", FAIL, reliable_night(-0.2, wrong=False)),
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
    Claim(
        "score_at_least=0.8, auto:8",
        "suite at 0.80: not as all iterations",
        FAIL,
        auto_suite_night(0.80, 0.8, wrong=True),
        ALPHA,
    ),
    Claim(
        "score_at_least=0.8, auto:8",
        "suite at 0.79: not as all iterations",
        FAIL,
        auto_suite_night(0.79, 0.8, wrong=True),
        ALPHA,
    ),
    Claim(
        "score_at_least=0.8, auto:8",
        "suite at 0.85",
        PASS,
        auto_suite_night(0.85, 0.8, wrong=False),
    ),
    Claim(
        "score_at_least=0.8, auto:8",
        "suite at 0.70",
        FAIL,
        auto_suite_night(0.70, 0.8, wrong=False),
    ),
    Claim(f"{REGRESSION}, auto:8", "unchanged, margin 0", FAIL, auto_variant_night(0, 0), ALPHA),
    Claim(
        f"{REGRESSION}, auto:8",
        "2 points worse, margin 2",
        FAIL,
        auto_variant_night(0.02, 0.02),
        ALPHA,
    ),
    Claim(
        f"{REGRESSION}, auto:8",
        "2 points worse, margin 2",
        PASS,
        auto_variant_night(0.02, 0.02),
        ALPHA,
    ),
    Claim(
        f"{REGRESSION}, auto:8",
        "5 points worse, margin 0",
        FAIL,
        auto_variant_night(0.05, 0),
        at_least=0.8,
    ),
    Claim(
        f"{REGRESSION}, auto:8", "8 points worse, margin 2", FAIL, auto_variant_night(0.08, 0.02)
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
    for number, claim in enumerate(CLAIMS):
        if ("auto:" in claim.gate) != (section == "decisions-auto"):
            continue
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
        write_section(section, f"## {_SECTIONS[section]}\n\n{intro}\n\n{table(header, rows)}")
    return any(bool(row.missed) for row in rows)


if __name__ == "__main__":
    sys.exit(main())
