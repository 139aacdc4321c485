"""PLAN: which drop a suite can find with its cases and iterations, before it is run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from evalcore.gates.comparing import NoSignificantRegression
from evalcore.gates.gate import gates_of
from evalcore.model.run import Plan
from evalcore.model.scoring import ROUNDING
from evalcore.model.suite import Suite
from evalcore.statistics.intervals import (
    PowerTest,
    Spread,
    cases_needed,
    clusters_needed,
    iterations_needed,
    smallest_drop,
)
from evalcore.storage.store import ObjectStore
from evalcore.wording import counted

# Miller 2024, "Adding Error Bars to Evals": case means and outcomes that are spread evenly.
ASSUMED_DIFFERENCE = 1 / 9
ASSUMED_NOISE = 1 / 6


@dataclass(frozen=True, slots=True)
class Power:
    """What a paired comparison of two runs of a suite finds: `no_significant_regression` fails.

    `smallest_drop` is found with the test's power by the suite's `cases` and `iterations`. For
    `drop` are needed `cases_needed` at the same iterations, or `iterations_needed` on each side
    with the same cases (None where no number is enough, as of a drop within the gate's `margin`).
    The cases of one of the `clusters` are taken to change together. `sources` say where the
    variances come from.
    """

    test: PowerTest
    drop: float
    cases: int
    iterations: int
    smallest_drop: float
    cases_needed: int | None
    iterations_needed: int | None
    difference_variance: float
    iteration_variance: float
    sources: tuple[str, str]
    margin: float = 0.0
    clusters: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the values for `--json`."""
        values = asdict(self)
        return {**values.pop("test"), **values}


def plan_power(suite: Suite, size: Plan, store: ObjectStore, test: PowerTest, drop: float) -> Power:
    """Return the power of the suite; variances come from its history where that has them."""
    between, noise, sources = _variances(suite, store)
    policy = suite.definition.policy
    margin = max((gate.margin for gate in gates_of(policy, NoSignificantRegression)), default=0.0)
    clusters = _clusters(suite)
    clustered = clusters is not None
    units = size.cases if clusters is None else max(clusters, 2)
    cases_per_unit = size.cases / units
    spread = Spread(between, noise / cases_per_unit, noise / cases_per_unit)
    variance = spread.of_difference(size.iterations, size.iterations)
    beyond = drop - margin
    needed = repeats = None
    if beyond > ROUNDING:
        repeats = iterations_needed(test, spread, units, beyond, clustered=clustered)
        if clustered:
            needed = math.ceil(clusters_needed(test, variance, beyond) * cases_per_unit)
        else:
            needed = cases_needed(test, variance, beyond)
    return Power(
        test=test,
        drop=drop,
        cases=size.cases,
        iterations=size.iterations,
        smallest_drop=margin + smallest_drop(test, variance, units, clustered=clustered),
        cases_needed=needed,
        iterations_needed=repeats,
        difference_variance=between,
        iteration_variance=noise,
        sources=sources,
        margin=margin,
        clusters=clusters,
    )


def _clusters(suite: Suite) -> int | None:
    """Return how many clusters the cases come in; a case without one is a cluster of its own."""
    key = suite.definition.policy.cluster
    if key is None:
        return None
    named: set[str] = set()
    alone = 0
    for case in suite.cases:
        value = case.metadata.get(key)
        if value is None and key == "group":
            value = case.group
        if value is None:
            alone += 1
        else:
            named.add(str(value))
    return len(named) + alone


def _variances(suite: Suite, store: ObjectStore) -> tuple[float, float, tuple[str, str]]:
    from evalcore.history.fingerprints import digest_cases
    from evalcore.history.sync import sync
    from evalcore.history.trend import read_case_variances

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
    if power.clusters is not None:
        size = f"{cases} in {counted(power.clusters, 'cluster')} × {each}"
    smallest = f"{power.smallest_drop:.4f}"
    if power.smallest_drop > 1:
        smallest = f"none ({smallest}: no score falls by more than 1)"
    difference, noise = power.sources
    return [
        f"power (α {test.alpha:g}, {test.power:.0%}, two runs paired by case):",
        f"  smallest drop that {size} find: {smallest}",
        f"  a drop of {power.drop:g} {_needs(power)}",
        f"  variance of the difference over cases {power.difference_variance:.4f} ({difference}), "
        f"of one iteration {power.iteration_variance:.4f} ({noise})",
    ]


def _needs(power: Power) -> str:
    """Return what the drop needs: cases, or iterations."""
    if power.cases_needed is None:
        return f"is never found: the gate's margin is {power.margin:g}"
    each, cases = counted(power.iterations, "iteration"), counted(power.cases, "case")
    needed = f"needs {counted(power.cases_needed, 'case')}"
    if power.clusters is not None:
        clusters = round(power.cases_needed * power.clusters / max(power.cases, 1))
        needed += f" in {counted(clusters, 'cluster')}"
    needed += f" with {each} each"
    if power.iterations_needed is None:
        return f"{needed}; with {cases} no number of iterations is enough"
    if power.iterations_needed > power.iterations:
        return f"{needed}, or {power.iterations_needed} iterations each with {cases}"
    return needed
