"""How far scores, passes and measures scatter: the samples behind the intervals of a report."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from evalcore.analytics.named import read_rows, run_query
from evalcore.model.run import Plan
from evalcore.model.summary import NO_SAMPLE, Sample, Shape, kurtosis_of
from evalcore.sql.connection import BoundedConnection
from evalcore.statistics.intervals import two_sided_t

_SCORE_UNIT = 10**8


Ends = tuple[float, float]


class Measures(NamedTuple):
    """The samples of the means of latency (ms), cost (USD) and tokens of an item, around 0, and the
    ends of the 95 % intervals of latency's median and 95th percentile.
    """

    latency: Sample = NO_SAMPLE
    cost: Sample = NO_SAMPLE
    tokens: Sample = NO_SAMPLE
    p50: Ends | None = None
    p95: Ends | None = None


class Samples(NamedTuple):
    """The samples of a run, and those of score and passes by the variant's number."""

    score: Sample
    passes: Sample
    measures: Measures
    variants: Mapping[int, tuple[Sample, Sample]]


class _Sums(NamedTuple):
    """Units of values: how many, and the sums over them of n, s, n², n·s and s²."""

    units: int
    n: int
    s: int
    nn: int
    ns: int
    ss: int

    @property
    def mean(self) -> float:
        return self.s / self.n

    @property
    def variance(self) -> float:
        """The squared standard error of the mean, of at least two units; computed in integers."""
        n, s = self.n, self.s
        squares = n * n * self.ss - 2 * n * s * self.ns + s * s * self.nn
        return self.units * squares / ((self.units - 1) * n**4)


def _shape(rows: Iterable[Sequence[Any]]) -> Shape:
    """Return how the means of scored units lie, from their sums (`spread.sql`)."""
    scored = [row for row in rows if row[2]]
    least, most = min(row[14] for row in scored), max(row[15] for row in scored)
    if least == most:
        return Shape(least, most, math.inf)
    n = sum(row[2] for row in scored)
    # What each unit lacks to 1, to the powers 1 to 4.
    first, second, third, fourth = (
        math.fsum(row[16 + power] for row in scored) for power in range(4)
    )
    mean = first / n
    squares = max(second - n * mean**2, 0.0)
    fourths = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * n * mean**4
    return Shape(least, most, kurtosis_of(n, squares, max(fourths, 0.0)))


def read_samples(connection: BoundedConnection, plan: Plan, cluster: str | None) -> Samples:
    """Return the samples of the run whose tables `items` and `cases` the connection holds.

    `cluster` is the metadata key by which cases belong together. Several variants of a case are one
    unit of the run's own samples.
    """
    _name_clusters(connection, cluster)
    clustered = cluster is not None
    if clustered:
        by_variant = read_rows(connection, "spread_units", by_variant=True)
    else:
        by_variant = read_rows(connection, "spread")
    overall = by_variant
    if plan.variants > 1:
        overall = read_rows(connection, "spread_units", by_variant=False)
    noise = None
    if plan.iterations > 1:
        ((noise,),) = read_rows(connection, "iteration_noise") or ((None,),)

    def described(sample: Sample, noise: float | None = None) -> Sample:
        return sample._replace(clustered=clustered, iterations=plan.iterations, noise=noise)

    def scored(sample: Sample, rows: Sequence[tuple[Any, ...]]) -> Sample:
        if not sample.n:
            return described(sample, noise)
        return described(sample._replace(shape=_shape(rows)), noise)

    variants: dict[int, list[Any]] = defaultdict(list)
    for row in by_variant:
        variants[row[0]].append(row)
    return Samples(
        scored(_grouped([_Sums(*row[2:8]) for row in overall if row[2]]), overall),
        described(_passes(overall)),
        read_measures(connection, plan, clustered=clustered).get(0, Measures()),
        {
            number: (
                scored(_mean(_total(_Sums(*row[2:8]) for row in rows)), rows),
                described(_passes(rows)),
            )
            for number, rows in variants.items()
        },
    )


def _name_clusters(connection: BoundedConnection, cluster: str | None) -> None:
    if cluster is None:
        columns = "(case_id VARCHAR, cluster VARCHAR, unit BIGINT)"
        connection.execute(f"CREATE OR REPLACE TEMP TABLE case_units {columns}")
        return
    path = f"$.{orjson.dumps(cluster).decode()}"
    run_query(connection, "case_units", path=path, key=cluster)


def _total(sums: Iterable[_Sums]) -> _Sums:
    known = ((value or 0 for value in each) for each in sums)
    return _Sums(*map(sum, zip((0,) * 6, *known, strict=True)))


def _mean(sums: _Sums) -> Sample:
    """Return the sample of a plain mean of scores."""
    if not sums.n:
        return NO_SAMPLE
    mean = sums.mean / _SCORE_UNIT
    if sums.units < 2:
        return Sample(sums.n, mean, sums.units, reason=_too_few(sums.units))
    error = math.sqrt(sums.variance) / _SCORE_UNIT
    return Sample(sums.n, mean, sums.units, error, df=sums.units - 1)


def _grouped(groups: Sequence[_Sums]) -> Sample:
    """Return the sample of the plain mean over groups of their means."""
    if len(groups) <= 1:
        return _mean(_total(groups))
    total = _total(groups)
    means = [each.mean for each in groups]
    mean = math.fsum(means) / len(means)
    value = mean / _SCORE_UNIT
    if all(each.units == 1 for each in groups):
        squares = math.fsum((each - mean) ** 2 for each in means)
        variance, df = squares / (len(means) - 1) / len(means), len(means) - 1
    elif any(each.units == 1 for each in groups):
        reason = "a group has a single case, whose spread is not known"
        return Sample(total.n, value, total.units, reason=reason)
    else:
        variance = math.fsum(each.variance for each in groups) / len(groups) ** 2
        df = total.units - len(groups)
    return Sample(total.n, value, total.units, math.sqrt(variance) / _SCORE_UNIT, df=df)


def _passes(rows: Iterable[tuple[Any, ...]]) -> Sample:
    """Return the sample of the share of cases that passed."""
    sums = _total(_Sums(*row[8:14]) for row in rows)
    if not sums.n:
        return NO_SAMPLE
    error = math.sqrt(sums.variance) if sums.units > 1 else None
    reason = None if sums.units > 1 else _too_few(sums.units)
    return Sample(
        sums.n, sums.s / sums.n, sums.units, error, reason, max(sums.units - 1, 0), passed=sums.s
    )


def read_measures(
    connection: BoundedConnection, plan: Plan, *, clustered: bool, by_variant: bool = False
) -> dict[int, Measures]:
    """Return the measures of the run at 0, or of its variants by their numbers.

    The ends of a percentile are the percentiles at the ends of the interval of its share (Woodruff
    1952). Over many cases these intervals are those of a bootstrap of the cases or clusters; they
    need no resampling and no seed.
    """
    items_per_unit = plan.iterations if by_variant else plan.items_per_case
    single = items_per_unit == 1 and not clustered
    measured = {}
    query = "measure_spread_single" if single else "measure_spread"
    for number, *row in read_rows(connection, query, by_variant=by_variant):
        latency, cost, tokens = (_measure(*row[first : first + 3]) for first in (0, 3, 6))
        variant = number if by_variant else None
        p50 = _percentile_ends(connection, variant, 0.5, latency, row[9])
        p95 = _percentile_ends(connection, variant, 0.95, latency, row[10])
        measured[number] = Measures(latency, cost, tokens, p50, p95)
    return measured


def _percentile_ends(
    connection: BoundedConnection,
    variant: int | None,
    share: float,
    latency: Sample,
    squares: float,
) -> Ends | None:
    if latency.units < 2:
        return None
    error = _measure(latency.n, latency.units, squares).standard_error or 0.0
    half = two_sided_t(0.05, latency.df) * error
    row = connection.execute(
        "SELECT quantile_cont(latency_ms, $shares::DOUBLE[]) FROM items "
        "WHERE $variant IS NULL OR variant_number = $variant",
        {"shares": [max(0.0, share - half), min(1.0, share + half)], "variant": variant},
    ).fetchone()
    low, high = row[0] if row else (0.0, 0.0)
    return (low, high) if low < high else None


def _measure(n: int | None, units: int | None, squares: float | None) -> Sample:
    if not n or not units:
        return NO_SAMPLE
    if units < 2:
        return Sample(n, 0.0, units, reason=_too_few(units))
    error = math.sqrt(units / (units - 1) * (squares or 0.0)) / n
    return Sample(n, 0.0, units, error, df=units - 1)


def _too_few(units: int) -> str:
    return f"{units} case has no spread: an interval needs two"
