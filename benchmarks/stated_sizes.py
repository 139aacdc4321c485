"""Nights of the sizes that remedies and `plan --power` state (benchmarks.decisions).

A size is stated for a small run whose mean and spread are those of a very large one.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import orjson
from click.testing import CliRunner

from benchmarks.nights import (
    ALPHA,
    Array,
    Decide,
    Draw,
    Night,
    Rng,
    Size,
    assumed,
    compared,
    paired,
    sums_of,
)
from evalcore.cli.main import cli
from evalcore.gates.builtin import PassRate, ScoreAtLeast
from evalcore.model.run import GateOutcome, GateResult
from evalcore.model.suite import Policy, ScoreRule
from evalcore.model.summary import Counts, Paired, Sample, Summary, UnitSums
from evalcore.statistics.intervals import moments_of_units

_LARGE = 200_000
_POLICY = Policy(ScoreRule.WEIGHTED, ())
Values = Callable[[Rng, Size], Array]


def _of_size(sums: UnitSums, units: int) -> UnitSums:
    """Return the sums over so many units of which the same spread is estimated."""
    share = (units - 1) / (sums.units - 1)
    return sums._replace(
        units=units, squares=sums.squares * share, fourth_powers=sums.fourth_powers * share
    )


def _total(size: Size, more: int) -> Size:
    """Return the size with more cases, in whole clusters."""
    return size._replace(cases=-(-(size.cases + more) // size.cluster) * size.cluster)


def stated_difference_night(draw: Draw, margin: float, small: Size) -> Decide:
    """Return a night of `no_significant_regression` with the cases that its remedy asks for."""

    @cache
    def stated() -> Size:
        large = draw(numpy.random.default_rng(0), small._replace(cases=_LARGE))[0]
        mean, sums = sums_of(large, small.cluster)
        sample = Paired(small.cases, mean, _of_size(sums, small.units), small.cluster > 1)
        result = compared((sample,), margin, history=False)
        return _total(small, result.details["variants"][0]["more_cases"])

    def decide(source: Rng) -> Night:
        sample = paired(draw(source, stated())[0], small.cluster)
        return Night(compared((sample,), margin, history=False).outcome)

    return decide


def stated_iterations_night(draw: Draw, margin: float, small: Size) -> Decide:
    """Return a night of `no_significant_regression` with the iterations that its remedy asks for.

    The cases themselves do not differ: all variance is noise.
    """

    @cache
    def stated() -> Size:
        large = draw(numpy.random.default_rng(0), small._replace(cases=_LARGE))[0]
        mean, sums = sums_of(large, 1)
        noise = sums.squares / sums.units
        few = _of_size(sums, small.units)
        sample = Paired(small.cases, mean, few, noise=noise, iterations=small.iterations)
        result = compared((sample,), margin, history=False)
        return small._replace(iterations=result.details["variants"][0]["iterations_each"])

    def decide(source: Rng) -> Night:
        sample = paired(draw(source, stated())[0])
        return Night(compared((sample,), margin, history=False).outcome)

    return decide


def binary(rate: float) -> Values:
    """Cases pass at this rate; those of a cluster together, by a correlation of 0.2."""

    def draw(source: Rng, size: Size) -> Array:
        if size.cluster == 1:
            return source.binomial(1, rate, size.cases).astype(float)
        p = source.beta(4 * rate, 4 * (1 - rate), size.units).repeat(size.cluster)
        return source.binomial(1, p).astype(float)

    return draw


def graded(mean: float) -> Values:
    """Scores of several iterations; the cases of a cluster are alike."""

    def draw(source: Rng, size: Size) -> Array:
        p = source.beta(5 * mean, 5 * (1 - mean), size.units).repeat(size.cluster)
        return source.binomial(size.iterations, p) / size.iterations

    return draw


def _judged(gate: PassRate | ScoreAtLeast, size: Size, mean: float, sums: UnitSums) -> GateResult:
    cases, clustered = size.cases, size.cluster > 1
    moments = moments_of_units(cases, mean, sums, clustered=clustered)
    assert moments is not None
    passed = round(mean * cases) if isinstance(gate, PassRate) else None
    sample = Sample(
        cases,
        mean,
        sums.units,
        moments.standard_error,
        df=moments.df,
        passed=passed,
        clustered=clustered,
        iterations=size.iterations,
        shape=moments.shape,
    )
    counts = Counts(planned=cases, completed=cases)
    summary = Summary(counts, cases, passed or 0, mean, score_sample=sample, pass_sample=sample)
    return gate.decide(summary, _POLICY)


def stated_threshold_night(draw: Values, gate: PassRate | ScoreAtLeast, small: Size) -> Decide:
    """Return a night of a gate with a threshold and the cases that its remedy asks for.

    It is `fail` if the gate fails and does not say that this may be chance.
    """

    @cache
    def stated() -> Size:
        large = draw(numpy.random.default_rng(0), small._replace(cases=_LARGE))
        mean, sums = sums_of(large, small.cluster)
        remedy = _judged(gate, small, mean, _of_size(sums, small.units)).remedy
        match = re.search(r"about (\d+) more cases?", remedy or "")
        assert match is not None, remedy
        return _total(small, int(match[1]))

    def decide(source: Rng) -> Night:
        size = stated()
        result = _judged(gate, size, *sums_of(draw(source, size), size.cluster))
        sure = result.outcome is GateOutcome.FAIL and result.remedy is None
        return Night(GateOutcome.FAIL if sure else GateOutcome.INCONCLUSIVE)

    return decide


def power_night(drop: float | None, size: Size, margin: float = 0.0) -> Decide:
    """Return a night with the cases that `plan --power` says a drop needs.

    Without a drop: with the smallest drop that it says this size finds.
    """

    @cache
    def planned() -> tuple[float, Size]:
        power = _printed_power(drop or 0.5, size, margin)
        if drop is None:
            return power["smallest_drop"], size
        return drop, _total(size, power["cases_needed"] - size.cases)

    def decide(source: Rng) -> Night:
        fall, whole = planned()
        sample = paired(assumed(fall)(source, whole)[0], size.cluster)
        return Night(compared((sample,), margin, history=False).outcome)

    return decide


def _printed_power(drop: float, size: Size, margin: float) -> Any:
    tests = [
        {
            "id": f"c{number}",
            "input": "x",
            "fixtures": {"output": "a"},
            "assertions": [{"type": "equals", "value": "a"}],
            "metadata": {"document": f"d{number // size.cluster}"},
        }
        for number in range(size.cases)
    ]
    gates = [{"gate": "no_significant_regression", "margin": margin, "alpha": ALPHA}]
    own = {"gates": gates, "iterations": size.iterations}
    if size.cluster > 1:
        own["cluster"] = "document"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "power.eval.json")
        path.write_bytes(orjson.dumps({"name": "power", "evalcore": own, "tests": tests}))
        options = ["--power", "--json", "--delta", str(drop), "--store", f"{folder}/store"]
        result = CliRunner().invoke(cli, ["plan", str(path), *options])
    assert not result.exit_code, result.output
    return orjson.loads(result.stdout)["power"]
