"""The cases of a run as a table that filters, sorts and pages by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from evalcore.analytics.filled_tables import fill_table
from evalcore.analytics.named_queries import query_text
from evalcore.analytics.search_index import Questions, SearchIndex
from evalcore.model.run import Plan
from evalcore.sql.connection import BoundedConnection

# By what a page is sorted, ascending: expressions over `case_rows` that are never NULL.
CASE_ORDERS: Final[Mapping[str, str]] = {
    "plan": "0",
    "worst": "CASE outcome WHEN 'error' THEN 0 WHEN 'failed' THEN 1 WHEN 'blocked' THEN 2 "
    "WHEN 'passed' THEN 4 ELSE 3 END",
    "score": "coalesce(score, -1)",
    "latency": "-coalesce(latency_ms, -1)",
    "cost": "-coalesce(cost_usd, -1)",
}
_CHANGE_COLUMNS: Final = {"case_id": "VARCHAR", "variant": "VARCHAR", "change": "VARCHAR"}


class CaseKey(NamedTuple):
    """Where a page ends: the sort key of its last row, and the row's number in the plan."""

    key: float
    number: int


class CaseChoice(NamedTuple):
    """Which cases a list shows; None and False hold back nothing. `text` is part of the id, the
    question or an output, in any case.
    """

    outcome: str | None = None
    variant: str | None = None
    tag: str | None = None
    assertion: str | None = None
    text: str | None = None
    changed: bool = False


class CaseRow(NamedTuple):
    """A case of one variant. `change` is regression, improvement or missing, None for neither.

    Latency (ms) is the mean, cost (USD) and tokens are the sums over the iterations.
    """

    number: int
    case_number: int
    case_id: str
    group: str | None
    variant: str
    score: float | None
    outcome: str
    iterations: int
    passed_iterations: int
    latency_ms: float | None
    cost_usd: float | None
    tokens: int | None
    tags: list[str]
    why: str | None
    question: str | None
    change: str | None


@dataclass(frozen=True, slots=True)
class CasePage:
    """Some rows, and the key after which the next page begins; None at the end."""

    rows: tuple[CaseRow, ...]
    following: CaseKey | None


@dataclass(frozen=True, slots=True)
class CaseFacets:
    """What there is to filter by, each with its number of rows; the most frequent first."""

    outcomes: Mapping[str, int]
    variants: Mapping[str, int]
    tags: Mapping[str, int]
    assertions: Mapping[str, int]


class CaseTable:
    """The table over a connection that has the tables `items` and `cases` of a run.

    `changes` are the directions of changed cases by (case id, variant). Searches read `texts`,
    which the first of them writes unless it is written before.
    """

    def __init__(
        self,
        connection: BoundedConnection,
        plan: Plan,
        questions: Questions,
        changes: Mapping[tuple[str, str], str],
    ) -> None:
        self._connection = connection
        self._plan = plan
        connection.execute(
            query_text("case_rows"), {"variants": plan.variants, "iterations": plan.iterations}
        )
        fill_table(
            connection,
            "changed_cases",
            _CHANGE_COLUMNS,
            (
                {"case_id": case_id, "variant": variant, "change": change}
                for (case_id, variant), change in changes.items()
            ),
        )
        self._questions = questions
        row = connection.execute("SELECT getvariable('files')").fetchone()
        self.texts = SearchIndex(row[0] if row else [], plan, questions)
        self._searched: str | None = None
        self._facets: CaseFacets | None = None

    def page(
        self, choice: CaseChoice, *, order: str = "plan", after: CaseKey | None = None, most: int
    ) -> CasePage:
        """Return at most `most` rows after a key; `order` is one of `CASE_ORDERS`."""
        query = query_text("case_page").format(
            sort=CASE_ORDERS[order], filter=query_text("case_filter")
        )
        parameters = self._parameters(choice) | {
            "after_key": None if after is None else after.key,
            "after_number": None if after is None else after.number,
            "most": most + 1,
        }
        rows = self._connection.execute(query, parameters).fetchall()
        page = rows[:most]
        following = CaseKey(page[-1][-1], page[-1][0]) if len(rows) > most else None
        return CasePage(self._with_questions([row[:-1] for row in page]), following)

    def count(self, choice: CaseChoice) -> int:
        """Return how many rows a choice has."""
        query = query_text("case_count").format(filter=query_text("case_filter"))
        row = self._connection.execute(query, self._parameters(choice)).fetchone()
        return int(row[0]) if row else 0

    def ended_items(self) -> int:
        """Return how many work items the rows stand for."""
        row = self._connection.execute("SELECT sum(iterations) FROM case_rows").fetchone()
        return int(row[0] or 0) if row else 0

    def facets(self, most: int = 100) -> CaseFacets:
        """Return what there is to filter by, at most `most` values of each."""
        if self._facets is None:
            self._facets = CaseFacets(
                outcomes=self._frequencies("outcome", most),
                variants=self._frequencies("variant", most),
                tags=self._frequencies("unnest(tags)", most),
                assertions=self._frequencies("unnest(unmet)", most),
            )
        return self._facets

    def neighbours(self, number: int) -> tuple[CaseRow | None, CaseRow | None]:
        """Return the rows before and after a row in the order of the plan."""
        row = self._connection.execute(
            "SELECT max(number) FILTER (number < $1), min(number) FILTER (number > $1) "
            "FROM case_rows",
            [number],
        ).fetchone()
        before, after = row or (None, None)
        rows = {each.number: each for each in self._by_number([before, after])}
        return rows.get(before), rows.get(after)

    def rows_of(self, case_id: str, group: str | None) -> tuple[CaseRow, ...]:
        """Return a case's rows, one for each variant, in the order of the plan."""
        numbers = self._connection.execute(
            "SELECT number FROM case_rows "
            "WHERE case_id = $1 AND case_group IS NOT DISTINCT FROM $2",
            [case_id, group],
        ).fetchall()
        return self._by_number([number for (number,) in numbers])

    def group_of(self, case_id: str) -> str | None:
        """Return the group of the first case with this id; None if it has none."""
        return self.groups_of([case_id]).get(case_id)

    def groups_of(self, case_ids: Sequence[str]) -> Mapping[str, str | None]:
        """Return the group of the first case with each of these ids."""
        rows = self._connection.execute(
            "SELECT case_id, case_group FROM case_rows WHERE list_contains($1, case_id) "
            "ORDER BY number DESC",
            [list(case_ids)],
        ).fetchall()
        return dict(rows)

    def _by_number(self, numbers: Sequence[int | None]) -> tuple[CaseRow, ...]:
        """Return rows by their numbers, in their order.

        The tables beside are asked apart: a join would read their row of every case.
        """
        chosen = [number for number in numbers if number is not None]
        if not chosen:
            return ()
        ends = [min(chosen), max(chosen)]
        rows = self._connection.execute(
            "SELECT * EXCLUDE (unmet) FROM case_rows "
            "WHERE number >= $1 AND number <= $2 AND list_contains($3, number) ORDER BY number",
            [*ends, chosen],
        ).fetchall()
        changed = {
            (case_id, variant): change
            for case_id, variant, change in self._connection.execute(
                "SELECT case_id, variant, change FROM changed_cases "
                "WHERE list_contains($1, case_id)",
                [[row[2] for row in rows]],
            ).fetchall()
        }
        return self._with_questions([(*row, changed.get((row[2], row[4]))) for row in rows])

    def _with_questions(self, rows: Sequence[tuple[Any, ...]]) -> tuple[CaseRow, ...]:
        """Return rows with the questions of their cases; `change` is a row's last value."""
        questions = self._questions.of_cases({row[1] for row in rows})
        return tuple(CaseRow._make((*row[:-1], questions[row[1]], row[-1])) for row in rows)

    def _parameters(self, choice: CaseChoice) -> dict[str, Any]:
        parameters = choice._asdict() | {"searched": choice.text is not None}
        text = parameters.pop("text")
        self._search("" if text is None else text.lower())
        return parameters

    def _search(self, text: str) -> None:
        """Make the table of the rows that hold a text; the next page of the same search has it."""
        if text == self._searched:
            return
        self._searched = None
        if text:
            parameters = {"text": text, "index": self.texts.path()}
            self._connection.execute(query_text("matching_cases"), parameters)
        else:
            self._connection.execute(
                "CREATE OR REPLACE TEMP TABLE matching_cases AS SELECT 0::BIGINT AS number LIMIT 0"
            )
        self._searched = text

    def _frequencies(self, expression: str, most: int) -> dict[str, int]:
        rows = self._connection.execute(
            f"SELECT value, count(*) FROM (SELECT {expression} AS value FROM case_rows) "  # noqa: S608 - a constant of this module
            "GROUP BY value ORDER BY 2 DESC, 1 LIMIT $1",
            [most],
        ).fetchall()
        return dict(rows)
