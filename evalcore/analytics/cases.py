"""The cases of a run: as a table that filters, sorts, searches and pages; their items, whole."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from evalcore.analytics.named import Connection, fill_table, first_value, query_text, run_query
from evalcore.model.run import Plan
from evalcore.model.summary import cut_mark
from evalcore.sql.connection import BoundedConnection, connect, literal_path

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
_QUESTION_COLUMNS: Final = {"case_number": "BIGINT", "question": "VARCHAR"}
_MOST_FACETS = 100  # values of each kind


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


class Questions(Protocol):
    """The beginnings of the inputs of a plan's cases."""

    def of_cases(self, numbers: Collection[int]) -> Mapping[int, str | None]:
        """Return those of some cases by their number in the plan; None for one without input."""

    def all(self) -> Iterable[str | None]:
        """Yield those of all cases in the order of the plan."""


class CaseTable:
    """The table over a connection that has the tables `items` and `cases` of a run.

    `changes` are the directions of changed cases by (case id, variant). The first search reads all
    questions.
    """

    def __init__(
        self,
        connection: BoundedConnection,
        plan: Plan,
        questions: Questions,
        changes: Mapping[tuple[str, str], str],
    ) -> None:
        self._connection, self._questions = connection, questions
        self._shape = {"variants": plan.variants, "iterations": plan.iterations}
        run_query(connection, "case_rows", **self._shape)
        rows = (dict(zip(_CHANGE_COLUMNS, (*key, to), strict=True)) for key, to in changes.items())
        fill_table(connection, "changed_cases", _CHANGE_COLUMNS, rows)
        self._searched: str | None = None
        self._facets: CaseFacets | None = None

    def page(
        self, choice: CaseChoice, *, order: str = "plan", after: CaseKey | None = None, most: int
    ) -> CasePage:
        """Return at most `most` rows after a key; `order` is one of `CASE_ORDERS`."""
        query = query_text("case_page").format(
            sort=CASE_ORDERS[order], filter=query_text("case_filter")
        )
        key, number = after or (None, None)
        ends = {"after_key": key, "after_number": number, "most": most + 1}
        rows = self._connection.execute(query, self._parameters(choice) | ends).fetchall()
        page = rows[:most]
        following = CaseKey(page[-1][-1], page[-1][0]) if len(rows) > most else None
        return CasePage(self._with_questions([row[:-1] for row in page]), following)

    def count(self, choice: CaseChoice) -> int:
        """Return how many rows a choice has."""
        query = query_text("case_count").format(filter=query_text("case_filter"))
        return int(first_value(self._connection, query, self._parameters(choice)))

    def ended_items(self) -> int:
        """Return how many work items the rows stand for."""
        return int(first_value(self._connection, "SELECT sum(iterations) FROM case_rows") or 0)

    def facets(self) -> CaseFacets:
        """Return what there is to filter by, the most frequent values of each."""
        if self._facets is None:
            columns = ("outcome", "variant", "unnest(tags)", "unnest(unmet)")
            self._facets = CaseFacets(*map(self._frequencies, columns))
        return self._facets

    def neighbours(self, number: int) -> tuple[CaseRow | None, CaseRow | None]:
        """Return the rows before and after a row in the order of the plan."""
        beside = (
            "number IN (SELECT unnest([max(number) FILTER (number < $number), "
            "min(number) FILTER (number > $number)]) FROM case_rows)"
        )
        rows = self._rows(beside, number=number)
        before = [row for row in rows if row.number < number]
        after = [row for row in rows if row.number > number]
        return before[0] if before else None, after[0] if after else None

    def rows_of(self, case_id: str, group: str | None) -> tuple[CaseRow, ...]:
        """Return a case's rows, one for each variant, in the order of the plan."""
        condition = "case_id = $case_id AND case_group IS NOT DISTINCT FROM $group"
        return self._rows(condition, case_id=case_id, group=group)

    def groups_of(self, case_ids: Sequence[str]) -> Mapping[str, str | None]:
        """Return the group of the first case with each of these ids."""
        rows = self._connection.execute(
            "SELECT case_id, case_group FROM case_rows WHERE list_contains($1, case_id) "
            "ORDER BY number DESC",
            [list(case_ids)],
        ).fetchall()
        return dict(rows)

    def _rows(self, condition: str, **parameters: Any) -> tuple[CaseRow, ...]:
        rows = self._connection.execute(
            "SELECT case_rows.* EXCLUDE (unmet), change FROM case_rows "  # noqa: S608 - constants
            f"LEFT JOIN changed_cases USING (case_id, variant) WHERE {condition} ORDER BY number",
            parameters,
        ).fetchall()
        return self._with_questions(rows)

    def _with_questions(self, rows: Sequence[tuple[Any, ...]]) -> tuple[CaseRow, ...]:
        """Return rows with the questions of their cases; `change` is a row's last value."""
        questions = self._questions.of_cases({row[1] for row in rows})
        return tuple(CaseRow._make((*row[:-1], questions[row[1]], row[-1])) for row in rows)

    def _parameters(self, choice: CaseChoice) -> dict[str, Any]:
        """Return the parameters of `case_filter.sql`, after the rows that hold a text are found."""
        parameters = choice._asdict() | {"searched": choice.text is not None}
        text = (parameters.pop("text") or "").lower()
        if self._searched is None or (text and not self._searched):
            asked = self._questions.all() if text else ()
            fill_table(self._connection, "questions", _QUESTION_COLUMNS, _numbered(asked))
        if text != self._searched:  # the next page of the same search has it
            self._searched = None
            run_query(self._connection, "matching_cases", text=text, **self._shape)
            self._searched = text
        return parameters

    def _frequencies(self, expression: str) -> dict[str, int]:
        rows = self._connection.execute(
            f"SELECT value, count(*) FROM (SELECT {expression} AS value FROM case_rows) "  # noqa: S608 - a constant of this module
            "GROUP BY value ORDER BY 2 DESC, 1 LIMIT $1",
            [_MOST_FACETS],
        ).fetchall()
        return dict(rows)


def _numbered(questions: Iterable[str | None]) -> Iterable[Mapping[str, Any]]:
    for number, question in enumerate(questions):
        if question is not None:
            # A lone surrogate has no place in UTF-8.
            text = question.encode("utf-8", "replace").decode()
            yield {"case_number": number, "question": text}


class CaseItem(NamedTuple):
    """The row of a work item. `output` is the beginning of its output.

    `output_characters` is the length of the whole output; None if that stands in the blob
    `output_ref`. `evidence` is JSON text, or stands in the blob `evidence_ref`. Times in
    milliseconds.
    """

    item: int
    case_id: str
    group: str | None
    variant: str
    target: str | None
    iteration: int
    status: str
    reason: str | None
    outcome: str | None
    score: float | None
    threshold: float | None
    error_kind: str | None
    error_message: str | None
    output: str | None
    output_characters: int | None
    output_ref: str | None
    evidence: str | None
    evidence_ref: str | None
    latency_ms: float | None
    ttft_ms: float | None
    cost_usd: float | None
    input_tokens: int | None
    output_tokens: int | None
    attempts: int | None
    scores: Sequence[Mapping[str, Any]] | None
    assertions: Sequence[Mapping[str, Any]] | None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    finish_reason: str | None = None

    @property
    def end(self) -> str:
        """The outcome of a completed item, the state of any other."""
        return self.outcome or self.status

    @property
    def cut_mark(self) -> str:
        """What a page says of an answer that its provider cut; "" for one that is whole."""
        return cut_mark(self.finish_reason).removeprefix(", ")

    @property
    def output_is_cut(self) -> bool:
        """Whether `output` is not the whole output."""
        if self.output_ref is not None:
            return True
        return (self.output_characters or 0) > len(self.output or "")


class ItemMark(NamedTuple):
    """How a work item of a case ended, without its texts."""

    item: int
    variant: str
    iteration: int
    end: str
    score: float | None


def read_marks(tables: Connection, items: range, iterations: int) -> tuple[ItemMark, ...]:
    """Return how these items ended, from the table `items` of a run."""
    rows = tables.execute(
        "SELECT item, variant, item % $3, coalesce(outcome, status), counted_score FROM items "
        "WHERE item >= $1 AND item < $2 ORDER BY item",
        [items.start, items.stop, iterations],
    ).fetchall()
    return tuple(ItemMark(*row) for row in rows)


def read_items(
    tables: Connection, numbers: Sequence[int], *, most_characters: int
) -> tuple[CaseItem, ...]:
    """Return items of the run whose tables these are, in their order."""
    query = query_text("case_items").format(
        filter="item >= $first AND item <= $last AND list_contains($numbers, item)"
    )
    if not numbers:
        return ()
    parameters = {"first": min(numbers), "last": max(numbers), "numbers": list(numbers)}
    rows = tables.execute(query, parameters | {"most": most_characters}).fetchall()
    return tuple(CaseItem(*row) for row in rows)


def read_case(
    parts: Sequence[Path], case_id: str, group: str | None, *, most_characters: int
) -> tuple[CaseItem, ...]:
    """Return the items of a case from the result parts of a run, in their order."""
    query = query_text("case_items").format(
        filter="case_id = $case_id AND case_group IS NOT DISTINCT FROM $case_group"
    )
    if not parts:
        return ()
    with connect() as connection:
        files = [literal_path(part) for part in parts]
        connection.execute("SET VARIABLE files = $1", [files])
        parameters = {"case_id": case_id, "case_group": group, "most": most_characters}
        return tuple(CaseItem(*row) for row in connection.execute(query, parameters).fetchall())
