"""The cases of a run: as a table that filters, sorts, searches and pages; their items, whole."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
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
        run_query(connection, "case_rows", variants=plan.variants, iterations=plan.iterations)
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
        files = first_value(connection, "SELECT getvariable('files')") or []
        self.texts = SearchIndex(files, plan, questions)
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
        return int(first_value(self._connection, query, self._parameters(choice)))

    def ended_items(self) -> int:
        """Return how many work items the rows stand for."""
        return int(first_value(self._connection, "SELECT sum(iterations) FROM case_rows") or 0)

    def facets(self) -> CaseFacets:
        """Return what there is to filter by, the most frequent values of each."""
        if self._facets is None:
            self._facets = CaseFacets(
                outcomes=self._frequencies("outcome"),
                variants=self._frequencies("variant"),
                tags=self._frequencies("unnest(tags)"),
                assertions=self._frequencies("unnest(unmet)"),
            )
        return self._facets

    def neighbours(self, number: int) -> tuple[CaseRow | None, CaseRow | None]:
        """Return the rows before and after a row in the order of the plan."""
        ends = "max(number) FILTER (number < $1), min(number) FILTER (number > $1)"
        beside = first_value(self._connection, f"SELECT [{ends}] FROM case_rows", [number])  # noqa: S608
        before, after = beside
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
            run_query(self._connection, "matching_cases", text=text, index=self.texts.path())
        else:
            self._connection.execute(
                "CREATE OR REPLACE TEMP TABLE matching_cases AS SELECT 0::BIGINT AS number LIMIT 0"
            )
        self._searched = text

    def _frequencies(self, expression: str) -> dict[str, int]:
        rows = self._connection.execute(
            f"SELECT value, count(*) FROM (SELECT {expression} AS value FROM case_rows) "  # noqa: S608 - a constant of this module
            "GROUP BY value ORDER BY 2 DESC, 1 LIMIT $1",
            [_MOST_FACETS],
        ).fetchall()
        return dict(rows)


class CaseItem(NamedTuple):
    """The row of a work item. `output` is the beginning of its output.

    `output_characters` is the length of the whole output; None if that stands in the blob
    `output_ref`. `evidence` is JSON text, or stands in the blob `evidence_ref`. Times in
    milliseconds, durations too; `started_ms` and `ended_ms` since the epoch.
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
    started_ms: int | None
    ended_ms: int | None
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
    parameters = {
        "first": min(numbers),
        "last": max(numbers),
        "numbers": list(numbers),
        "most": most_characters,
    }
    return tuple(CaseItem(*row) for row in tables.execute(query, parameters).fetchall())


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


_QUESTION_COLUMNS: Final = {"case_number": "BIGINT", "question": "VARCHAR"}
# Row groups of the usual size would keep 50 MB of a run's outputs in memory.
_ROW_GROUP: Final = 20_000


class Questions(Protocol):
    """The beginnings of the inputs of a plan's cases."""

    def of_cases(self, numbers: Collection[int]) -> Mapping[int, str | None]:
        """Return those of some cases by their number in the plan; None for one without input."""

    def all(self) -> Iterable[str | None]:
        """Yield those of all cases in the order of the plan."""


class SearchIndex:
    """Ids, questions and outputs of the items in the result files of a run.

    The file is written by the first who needs it: of 100 000 cases that takes a second. Several
    threads may use it; the connection of the run's tables is not needed.
    """

    def __init__(self, files: Sequence[str], plan: Plan, questions: Questions) -> None:
        self._files, self._plan, self._questions = list(files), plan, questions
        self._lock = threading.Lock()
        self._folder: TemporaryDirectory[str] | None = None
        self._is_closed = False

    @property
    def is_written(self) -> bool:
        """Whether a search can begin at once."""
        return self._folder is not None

    def write(self) -> None:
        """Write the file; nothing happens if it is there, or if the index was closed."""
        with self._lock:
            if self._folder is None and not self._is_closed:
                folder = TemporaryDirectory(prefix="evalcore-search-")
                try:
                    self._write(Path(folder.name) / "texts.parquet")
                except BaseException:  # an interrupt leaves no file behind, too
                    folder.cleanup()
                    raise
                self._folder = folder

    def path(self) -> str:
        """Return the file's path for DuckDB; it is written if it is not there."""
        self.write()
        if self._folder is None:
            raise ValueError("the index is closed")
        return literal_path(Path(self._folder.name) / "texts.parquet")

    def close(self) -> None:
        """Remove the file, after it is written if a thread does so now."""
        with self._lock:
            self._is_closed = True
            if self._folder is not None:
                self._folder.cleanup()

    def _write(self, path: Path) -> None:
        connection = BoundedConnection(self._plan.items)
        try:
            connection.execute("SET VARIABLE files = $1", [self._files])
            fill_table(connection, "questions", _QUESTION_COLUMNS, _numbered(self._questions.all()))
            texts = query_text("search_texts").format(
                iterations=self._plan.iterations,
                case_items=self._plan.variants * self._plan.iterations,
            )
            target = str(path).replace("'", "''")
            connection.execute(
                f"COPY ({texts}) TO '{target}' "
                f"(FORMAT parquet, COMPRESSION lz4_raw, ROW_GROUP_SIZE {_ROW_GROUP})"
            )
        finally:
            connection.close()


def _numbered(questions: Iterable[str | None]) -> Iterable[Mapping[str, Any]]:
    for number, question in enumerate(questions):
        if question is not None:
            # A lone surrogate has no place in UTF-8.
            text = question.encode("utf-8", "replace").decode()
            yield {"case_number": number, "question": text}
