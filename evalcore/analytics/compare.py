"""Candidates against their baseline, in SQL over the tables of `Aggregates`; case by case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from evalcore.analytics.named import Connection, fill_table, query_text, read_rows, run_query
from evalcore.model.run import Plan
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
    UnitSums,
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
_MEASURES = sorted(MEASURE_KINDS)
_LISTS = ("regressions", "improvements", "missing", "worse_measures", "better_measures")
_CHANGED = ("regressed_cases", "hard_regressed_cases", "improved_cases", "worse_cases")
_COUNTED = ("regression_kinds", "improvement_kinds", "unsettled_kinds")
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
        if not pairs:
            return ()
        earlier = self.comparison.earlier
        names = {"candidates": [p[0] for p in pairs], "baselines": [p[1] for p in pairs]}
        run_query(self.connection, "pairs", **names, same_run=earlier is None)
        repeated = plan.iterations > 1 or (earlier is not None and earlier.plan.iterations > 1)
        alphas = self._judge_chances(repeated=repeated)
        run_query(self.connection, "differences", **self.comparison.tolerances._asdict())
        facts: list[dict[str, Any]] = [{"run": earlier and earlier.run_id} for _ in pairs]
        for index, *sides, shared, lost in self._rows("sides"):
            baseline, candidate = map(_states, sides)
            facts[index] |= {"baseline_cases": baseline, "candidate_cases": candidate}
            facts[index] |= {"measured_in_both": shared, "lost": lost}
        kinds = {"hard": sorted(HARD_KINDS), "measures": _MEASURES}
        for index, *values in self._rows("changed_cases", **kinds):
            facts[index] |= dict(zip(_CHANGED, values, strict=True))
        for index, kind, *counts in self._rows("difference_counts"):
            for name, count in zip(_COUNTED, counts[:3], strict=True):
                if count:
                    facts[index].setdefault(name, {})[DifferenceKind(kind)] = count
            facts[index]["missing_count"] = facts[index].get("missing_count", 0) + counts[3]
        for index, kind, *values in self._rows("compared_measures"):
            measure = Measure(DifferenceKind(kind), *values)
            facts[index]["measures"] = (*facts[index].get("measures", ()), measure)
        clusters = self._cluster_sums()
        for index, *values in self._rows("paired"):
            facts[index] |= _paired(values, clusters.get(index))
        self._add_lists(pairs, facts)
        for index, *passes in self._rows("first_unsettled") if repeated else ():
            facts[index]["unsettled"] = Unsettled._make((*passes, alphas.get(index, ALPHA)))
        return tuple(
            VariantComparison(*pair, **known) for pair, known in zip(pairs, facts, strict=True)
        )

    def _add_lists(self, pairs: Sequence[tuple[str, str]], facts: Sequence[dict[str, Any]]) -> None:
        most = max(_FEWEST_LISTED, MAX_LISTED // len(pairs))
        for name, index, case, kind, *values in self._rows(
            "listed_differences", most=most, measures=_MEASURES
        ):
            difference = Difference(pairs[index][0], case, DifferenceKind(kind), *values)
            facts[index].setdefault(name, []).append(difference)
        for known in facts:
            known |= {name: tuple(known[name]) for name in _LISTS if name in known}

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

    def _cluster_sums(self) -> dict[int, UnitSums]:
        cluster = self.comparison.cluster
        if cluster is None:
            return {}
        path = f"$.{orjson.dumps(cluster).decode()}"
        rows = self._rows("clusters", key=cluster, path=path)
        return {index: UnitSums(*sums) for index, *sums in rows}

    def _rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return read_rows(self.connection, query, **parameters)


def _states(histogram: Mapping[str, int]) -> dict[CaseState, int]:
    return {state: histogram[state] for state in CaseState if state in histogram}


def _paired(row: Sequence[Any], clusters: UnitSums | None) -> dict[str, Any]:
    """Return what a row of `paired.sql` says of a candidate, and the sums of its clusters."""
    compared, scored, mean, *sums, worse, better, noise, iterations = row
    facts = {"compared": compared, "worse": worse, "better": better}
    if not scored:
        return facts
    paired = Paired(scored, mean, clusters or UnitSums(scored, *sums), clustered=bool(clusters))
    if noise is not None:
        paired = paired._replace(noise=noise, iterations=iterations)
    return facts | {"paired": paired}


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

    `move` is one of `MOVES`; latency in ms, the mean over the iterations.
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
    was_score: float
    now_score: float
    cases: int
    case_id: str


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


def read_moves(tables: Connection) -> Mapping[str, int]:
    """Return how many cases moved in which way, in the order of `MOVES`."""
    query = query_text("moved_cases").format(filter="true")
    counted = f"SELECT move, count(*) FROM ({query}) GROUP BY move"  # noqa: S608 - a named query
    rows = tables.execute(counted, _parameters(None, 2**62)).fetchall()
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
    rows = read_rows(tables, "scatter", grid=GRID)
    return tuple(ScatterPoint(*row) for row in rows)


def _parameters(after: PairedKey | None, most: int) -> dict[str, Any]:
    rank, number, case_id = after or (None, None, None)
    return {"after_rank": rank, "after_number": number, "after_id": case_id, "most": most}
