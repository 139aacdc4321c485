"""Two variants case by case: the cases that moved first, and a scatter of their scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from evalcore.analytics.named_queries import query_text

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


class _Database(Protocol):
    def execute(self, query: str, parameters: Any = None) -> Any: ...


def keep_pairs(tables: _Database) -> None:
    """Drop what the pairs were made from: pages need nothing else of it, and it is the most."""
    for table in ("items", "cases", "measured", "baseline_measured", "differences", "chances"):
        tables.execute(f"DROP TABLE IF EXISTS {table}")


def read_moves(tables: _Database) -> Mapping[str, int]:
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
    tables: _Database, choice: PairedChoice, after: PairedKey | None, *, most: int
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


def read_scatter(tables: _Database) -> tuple[ScatterPoint, ...]:
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
