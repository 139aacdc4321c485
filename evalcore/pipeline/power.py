"""PLAN: which drop a suite can find with its cases and iterations, before it is run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from evalcore.frozen import frozen
from evalcore.mistakes.wording import counted
from evalcore.model.run import Plan
from evalcore.model.suite import Suite
from evalcore.statistics.power import (
    PowerTest,
    Spread,
    cases_needed,
    iterations_needed,
    smallest_drop,
)
from evalcore.storage.object_store import ObjectStore

# Miller 2024, "Adding Error Bars to Evals": case means and outcomes that are spread evenly.
ASSUMED_DIFFERENCE = 1 / 9
ASSUMED_NOISE = 1 / 6


@frozen
class Power:
    """What a paired comparison of two runs of a suite finds.

    `smallest_drop` is found with the test's power by the suite's `cases` and `iterations`. For
    `drop` are needed `cases_needed` at the same iterations, or `iterations_needed` on each side
    with the same cases (None where no number is enough). `sources` say where the variances come
    from.
    """

    test: PowerTest
    drop: float
    cases: int
    iterations: int
    smallest_drop: float
    cases_needed: int
    iterations_needed: int | None
    difference_variance: float
    iteration_variance: float
    sources: tuple[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--json`."""
        values = asdict(self)
        return {**values.pop("test"), **values}


def plan_power(suite: Suite, size: Plan, store: ObjectStore, test: PowerTest, drop: float) -> Power:
    """Return the power of the suite; variances come from its history where that has them."""
    between, noise, sources = _variances(suite, store)
    spread = Spread(between, noise, noise)
    variance = spread.of_difference(size.iterations, size.iterations)
    return Power(
        test=test,
        drop=drop,
        cases=size.cases,
        iterations=size.iterations,
        smallest_drop=smallest_drop(test, variance, size.cases),
        cases_needed=cases_needed(test, variance, drop),
        iterations_needed=iterations_needed(test, spread, size.cases, drop),
        difference_variance=between,
        iteration_variance=noise,
        sources=sources,
    )


def _variances(suite: Suite, store: ObjectStore) -> tuple[float, float, tuple[str, str]]:
    from evalcore.history.case_variances import read_case_variances
    from evalcore.history.fingerprints import digest_cases
    from evalcore.history.sync import sync

    sync(store)
    cases_sha256, _ = digest_cases(suite.cases.parts())
    measured = read_case_variances(store, suite.definition.name, cases_sha256)
    history, assumed = f"measured in {counted(measured.runs, 'run')}", "assumed"
    between, noise = measured.difference, measured.noise
    return (
        ASSUMED_DIFFERENCE if between is None else between,
        ASSUMED_NOISE if noise is None else noise,
        (assumed if between is None else history, assumed if noise is None else history),
    )


def power_lines(power: Power) -> list[str]:
    """Return the power for people, a line each."""
    test, each = power.test, counted(power.iterations, "iteration")
    cases = counted(power.cases, "case")
    size = f"{cases} × {each}"
    needed = f"{counted(power.cases_needed, 'case')} with {each} each"
    if power.iterations_needed is None:
        needed += f"; with {cases} no number of iterations is enough"
    elif power.iterations_needed > power.iterations:
        needed += f", or {power.iterations_needed} iterations each with {cases}"
    smallest = f"{power.smallest_drop:.4f}"
    if power.smallest_drop > 1:
        smallest = f"none ({smallest}: no score falls by more than 1)"
    difference, noise = power.sources
    return [
        f"power (α {test.alpha:g}, {test.power:.0%}, two runs paired by case):",
        f"  smallest drop that {size} find: {smallest}",
        f"  a drop of {power.drop:g} needs {needed}",
        f"  variance of the difference over cases {power.difference_variance:.4f} ({difference}), "
        f"of one iteration {power.iteration_variance:.4f} ({noise})",
    ]
