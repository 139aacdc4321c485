"""Candidates against their baseline, in SQL over the tables of `Aggregates`; case by case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from evalcore.analytics.named import Connection, fill_table, query_text, read_rows, run_query
from evalcore.model.run import Plan
from evalcore.model.sample import UnitSums
from evalcore.model.summary import (
    HARD_KINDS,
    MEASURE_KINDS,
    CaseState,
    Comparison,
    Difference,
    DifferenceKind,
    Measure,
    Paired,
    Tolerances,
    Unsettled,
    VariantComparison,
)
from evalcore.statistics.tests import fisher, holm

if TYPE_CHECKING:
    from evalcore.sql.connection import BoundedConnection

MAX_LISTED = 3_000
_FEWEST_LISTED = 20
ALPHA = 0.05
TOLERANCES = Tolerances()
_CHANCES = {
    **dict.fromkeys(("place", "was_pass_count", "was_run", "now_pass_count", "now_run"), "BIGINT"),
    "p": "DOUBLE",
    "significant": "BOOLEAN",
}


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run whose variants are the baseline: its result parts, its plan, its variants in order."""

    run_id: str
    parts: Sequence[Path]
    plan: Plan
    variants: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """What the run's `variants` are compared with: one of them, or an earlier run.

    `cluster` is the metadata key by which cases belong together (docs/reference/statistics.md).
    `only_planned` leaves out cases of an earlier run that a filter kept out of this one.
    """

    variants: tuple[str, ...]
    baseline: str | None = None
    earlier: EarlierRun | None = None
    tolerances: Tolerances = TOLERANCES
    cluster: str | None = None
    only_planned: bool = False


def match_variants(
    candidates: Sequence[str], baselines: Sequence[str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the pairs of variants with the same id, or the only two; and those left alone."""
    if len(candidates) == len(baselines) == 1:
        return [(candidates[0], baselines[0])], []
    pairs = [(name, name) for name in candidates if name in baselines]
    return pairs, [name for name in candidates if name not in baselines]


@dataclass(frozen=True)
class Comparer:
    """Compares within the connection that holds `items` and `cases` of the candidates' run.

    `reduction` is how the cases of both sides are reduced: the parameters of `cases.sql`.
    """

    connection: BoundedConnection
    comparison: ComparisonPlan
    reduction: Mapping[str, Any]

    def keep_baseline(self, plan: Plan) -> None:
        """Take what stands in `items` and `cases` for the baseline's; to be called before others.

        The two are dropped: the candidates' tables have their names afterwards.
        """
        self._measure(plan)
        self.connection.execute("ALTER TABLE measured RENAME TO baseline_measured")
        # A table that is replaced stays until the new one is complete.
        for table in ("items", "cases"):
            self.connection.execute(f"DROP TABLE {table}")

    def compare(self, plan: Plan) -> Comparison:
        """Return the comparison; counts are exact, lists hold the first differences."""
        planned, earlier = self.comparison, self.comparison.earlier
        self._measure(plan)
        if earlier is not None:
            pairs, alone = match_variants(planned.variants, earlier.variants)
            unavailable = [
                f"run {earlier.run_id} has no variant '{variant}' to compare with"
                for variant in alone
            ]
            if planned.only_planned:
                self.connection.execute(
                    "DELETE FROM baseline_measured WHERE case_id NOT IN (SELECT case_id FROM cases)"
                )
        else:
            self.connection.execute(
                "CREATE OR REPLACE TEMP VIEW baseline_measured AS FROM measured"
            )
            baseline = str(planned.baseline)
            pairs = [(name, baseline) for name in planned.variants if name != baseline]
            unavailable = []
            if not pairs:
                unavailable = [f"no variant beside the baseline '{baseline}' was run"]
        pairs, without = self._with_results(pairs)
        unavailable += [f"the baseline has no result of variant '{name}'" for name in without]
        return Comparison(self._compare_pairs(pairs, plan), tuple(unavailable))

    def _measure(self, plan: Plan) -> None:
        run_query(self.connection, "measured", iterations=plan.iterations, **self.reduction)

    def _with_results(
        self, pairs: Sequence[tuple[str, str]]
    ) -> tuple[list[tuple[str, str]], list[str]]:
        """Return the pairs whose baseline has results, and the baselines that have none."""
        rows = self.connection.execute("SELECT DISTINCT variant FROM baseline_measured").fetchall()
        names = {name for (name,) in rows}
        available = [pair for pair in pairs if pair[1] in names]
        return available, list(dict.fromkeys(name for _, name in pairs if name not in names))

    def _compare_pairs(
        self, pairs: Sequence[tuple[str, str]], plan: Plan
    ) -> tuple[VariantComparison, ...]:
        earlier = self.comparison.earlier
        run_id = None if earlier is None else earlier.run_id
        compared = [VariantComparison(now, was, run_id) for now, was in pairs]
        if not compared:
            return ()
        names = {"candidates": [p[0] for p in pairs], "baselines": [p[1] for p in pairs]}
        run_query(self.connection, "pairs", **names, same_run=earlier is None)
        repeated = plan.iterations > 1 or (earlier is not None and earlier.plan.iterations > 1)
        alphas = self._judge_chances(repeated=repeated)
        run_query(self.connection, "differences", **self.comparison.tolerances._asdict())
        self._add_sides(compared)
        self._add_counts(compared)
        self._add_paired(compared)
        self._add_measures(compared)
        self._add_lists(compared)
        if repeated:
            self._add_unsettled(compared, alphas)
        return tuple(compared)

    def _judge_chances(self, *, repeated: bool) -> dict[int, float]:
        """Fill the table `chances`: Fisher's p of each combination of passes, and Holm's verdict.

        Returns the level that the smallest p of each candidate has to reach.
        """
        rows = self._rows("passes") if repeated else []
        alphas: dict[int, float] = {}
        judged: list[dict[str, Any]] = []
        for index in dict.fromkeys(row[0] for row in rows):
            own = [row for row in rows if row[0] == index]
            # Cases with the same passes share their p: a million cases have few combinations.
            tests = [(fisher(row[1], row[2], row[3], row[4]), row[5]) for row in own]
            alphas[index] = ALPHA / sum(count for _, count in tests)
            for row, (p, _), rejected in zip(own, tests, holm(tests, ALPHA), strict=True):
                judged.append(dict(zip(_CHANCES, (*row[:5], p, rejected), strict=True)))
        fill_table(self.connection, "chances", _CHANCES, judged)
        return alphas

    def _add_sides(self, compared: list[VariantComparison]) -> None:
        for index, was, now, shared, lost in self._rows("sides"):
            compared[index] = replace(
                compared[index],
                baseline_cases=_states(was),
                candidate_cases=_states(now),
                measured_in_both=shared,
                lost=lost,
            )

    def _add_counts(self, compared: list[VariantComparison]) -> None:
        for index, kind, worse, better, unsettled, missing in self._rows("difference_counts"):
            candidate = compared[index]
            compared[index] = replace(
                candidate,
                regression_kinds=_counted(candidate.regression_kinds, kind, worse),
                improvement_kinds=_counted(candidate.improvement_kinds, kind, better),
                unsettled_kinds=_counted(candidate.unsettled_kinds, kind, unsettled),
                missing_count=candidate.missing_count + missing,
            )
        kinds = {"hard": sorted(HARD_KINDS), "measures": sorted(MEASURE_KINDS)}
        for index, regressed, hard, improved, worse in self._rows("changed_cases", **kinds):
            compared[index] = replace(
                compared[index],
                regressed_cases=regressed,
                hard_regressed_cases=hard,
                improved_cases=improved,
                worse_cases=worse,
            )

    def _add_measures(self, compared: list[VariantComparison]) -> None:
        for index, kind, was, now, cases in self._rows("compared_measures"):
            measure = Measure(DifferenceKind(kind), was, now, cases)
            measures = (*compared[index].measures, measure)
            compared[index] = replace(compared[index], measures=measures)

    def _add_paired(self, compared: list[VariantComparison]) -> None:
        for index, number, scored, mean, *rest in self._rows("paired"):
            *sums, worse, better, noise, iterations = rest
            paired = Paired(scored, mean, UnitSums(scored, *sums)) if scored else None
            if paired is not None and noise is not None:
                paired = paired._replace(noise=noise, iterations=iterations)
            compared[index] = replace(
                compared[index], compared=number, worse=worse, better=better, paired=paired
            )

        cluster = self.comparison.cluster
        if cluster is None:
            return
        path = f"$.{orjson.dumps(cluster).decode()}"
        for index, *sums in self._rows("clusters", key=cluster, path=path):
            paired = compared[index].paired
            if paired is not None:
                clustered = paired._replace(sums=UnitSums(*sums), clustered=True)
                compared[index] = replace(compared[index], paired=clustered)

    def _add_lists(self, compared: list[VariantComparison]) -> None:
        listed: dict[tuple[str, int], list[Difference]] = {}
        most = max(_FEWEST_LISTED, MAX_LISTED // len(compared))
        for name, index, case, kind, *values in self._rows(
            "listed_differences", most=most, measures=sorted(MEASURE_KINDS)
        ):
            difference = Difference(compared[index].variant, case, DifferenceKind(kind), *values)
            listed.setdefault((name, index), []).append(difference)
        for index, candidate in enumerate(compared):
            compared[index] = replace(
                candidate,
                regressions=tuple(listed.get(("regression", index), ())),
                improvements=tuple(listed.get(("improvement", index), ())),
                missing=tuple(listed.get(("missing", index), ())),
                worse_measures=tuple(listed.get(("worse measure", index), ())),
                better_measures=tuple(listed.get(("better measure", index), ())),
            )

    def _add_unsettled(self, compared: list[VariantComparison], alphas: dict[int, float]) -> None:
        for row in self._rows("first_unsettled"):
            index, case, was_passed, was_run, now_passed, now_run = row
            alpha = alphas.get(index, ALPHA)
            unsettled = Unsettled(case, was_passed, was_run, now_passed, now_run, alpha)
            compared[index] = replace(compared[index], unsettled=unsettled)

    def _rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return read_rows(self.connection, query, **parameters)


def _states(histogram: Mapping[str, int]) -> dict[CaseState, int]:
    return {state: histogram[state] for state in CaseState if state in histogram}


def _counted(counts: Any, kind: str, number: int) -> dict[DifferenceKind, int]:
    return {**counts, DifferenceKind(kind): number} if number else dict(counts)


# Points that are nearer to each other are one: at most 441 points make a page of bounded size.
GRID: Final = 20
MOVES: Final[tuple[str, ...]] = (
    "regression",
    "missing",
    "worse",
    "improvement",
    "better",
    "same",
)


class PairedCase(NamedTuple):
    """A case on both sides; what a side did not measure is None. `change` is that of the score.

    `move` is one of `MOVES`; latency in ms, cost in USD, both means over the iterations.
    """

    case_id: str
    was_state: str | None
    now_state: str | None
    was_passed: bool | None
    now_passed: bool | None
    was_score: float | None
    now_score: float | None
    was_latency: float | None
    now_latency: float | None
    was_cost: float | None
    now_cost: float | None
    change: float | None
    move: str
    rank: float
    number: int


class ScatterPoint(NamedTuple):
    """Cases with nearly the same two scores, in cells of 1/20: how many, and the id of the first.

    The scores are those of the cell's middle.
    """

    was_cell: int
    now_cell: int
    cases: int
    case_id: str

    @property
    def was_score(self) -> float:
        """The baseline's score."""
        return self.was_cell / GRID

    @property
    def now_score(self) -> float:
        """The candidate's score."""
        return self.now_cell / GRID


class PairedKey(NamedTuple):
    """Where a page ends."""

    rank: float
    number: int
    case_id: str


class PairedChoice(NamedTuple):
    """Which cases a page shows: those of a move, those of a cell of the scatter; None for all."""

    move: str | None = None
    cell: tuple[int, int] | None = None


class PairedPage(NamedTuple):
    """Some cases, and the key after which the next page begins; None at the end."""

    rows: tuple[PairedCase, ...]
    following: PairedKey | None


def keep_pairs(tables: Connection) -> None:
    """Drop what the pairs were made from: pages need nothing else of it, and it is the most."""
    for table in ("items", "cases", "measured", "baseline_measured", "differences", "chances"):
        tables.execute(f"DROP TABLE IF EXISTS {table}")


def read_moves(tables: Connection) -> Mapping[str, int]:
    """Return how many cases moved in which way, in the order of `MOVES`."""
    query = query_text("moved_cases").format(filter="true")
    parameters = _parameters(None, 2**62)
    rows = tables.execute(
        f"SELECT move, count(*) FROM ({query}) GROUP BY move",  # noqa: S608 - a named query
        parameters,
    ).fetchall()
    counts = dict(rows)
    return {move: counts[move] for move in MOVES if move in counts}


def read_paired(
    tables: Connection, choice: PairedChoice, after: PairedKey | None, *, most: int
) -> PairedPage:
    """Return at most `most` cases after a key, those that moved first."""
    parameters = _parameters(after, most + 1)
    condition = "true"
    if choice.move is not None:
        condition = "move = $move"
        parameters["move"] = choice.move
    if choice.cell is not None:
        condition += (
            f" AND round(was_score * {GRID}) = $was_cell AND round(now_score * {GRID}) = $now_cell"
        )
        parameters["was_cell"], parameters["now_cell"] = choice.cell
    query = query_text("moved_cases").format(filter=condition)
    rows = [PairedCase(*row) for row in tables.execute(query, parameters).fetchall()]
    page = rows[:most]
    last = PairedKey(page[-1].rank, page[-1].number, page[-1].case_id) if page else None
    return PairedPage(tuple(page), last if len(rows) > most else None)


def read_scatter(tables: Connection) -> tuple[ScatterPoint, ...]:
    """Return the points of the cases that both sides measured, the least frequent last."""
    rows = tables.execute(
        f"SELECT round(was_score * {GRID})::INTEGER AS was_cell, "  # noqa: S608 - a constant
        f"round(now_score * {GRID})::INTEGER AS now_cell, count(*) AS cases, min(case_id) "
        "FROM pairs WHERE was_score IS NOT NULL AND now_score IS NOT NULL "
        "GROUP BY was_cell, now_cell ORDER BY cases DESC, was_cell, now_cell"
    ).fetchall()
    return tuple(ScatterPoint(*row) for row in rows)


def _parameters(after: PairedKey | None, most: int) -> dict[str, Any]:
    return {
        "after_rank": None if after is None else after.rank,
        "after_number": None if after is None else after.number,
        "after_id": None if after is None else after.case_id,
        "most": most,
    }
