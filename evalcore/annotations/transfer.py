"""Labels as rows: exported from a run, imported into the runs that they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple, Required

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from evalcore.annotations.labels import (
    LONGEST_COMMENT,
    LabelBook,
    LabelRecord,
    add_label,
    check_annotator,
    latest_by_annotator,
)
from evalcore.annotations.queue import AnnotationQueue, AnnotationTask, RunQuestions
from evalcore.errors import EvalError
from evalcore.model.annotation import AnswerForm, Label
from evalcore.problems import Problems
from evalcore.storage.run_names import choose_run
from evalcore.storage.store import ObjectStore
from evalcore.wording import quote, quote_all, suggest

COLUMNS = (
    "run",
    "case",
    "variant",
    "iteration",
    "assertion",
    "label",
    "annotator",
    "comment",
    "at",
)


@with_config(ConfigDict(extra="forbid", strict=True))
class LabelRow(TypedDict, total=False):
    """One label. `at` is ISO 8601 with an offset; null is the same as left out."""

    run: Required[Annotated[str, Field(min_length=1)]]
    case: Required[Annotated[str, Field(min_length=1)]]
    variant: str | None
    iteration: Annotated[int, Field(ge=0)] | None
    assertion: Required[Annotated[str, Field(min_length=1)]]
    label: Required[str | int | float | bool]
    annotator: Required[Annotated[str, Field(min_length=1)]]
    comment: Annotated[str, Field(max_length=LONGEST_COMMENT)] | None
    at: str | None


def export_labels(queue: AnnotationQueue) -> Iterator[dict[str, Any]]:
    """Yield a row of `COLUMNS` for the last label of each annotator, in the order of the plan.

    A content that several items have is a row once for each annotator, of its first item.
    """
    names: dict[tuple[str, str, int], list[str]] = {}
    for task in queue.tasks:
        names.setdefault((task.case_id, task.variant, task.iteration), []).append(task.assertion)
    for task in queue.tasks:
        of_item = names[task.case_id, task.variant, task.iteration]
        is_unique = of_item.count(task.assertion) == 1
        records = latest_by_annotator(queue.book.content_records(task.key), task.form)
        for _, record in sorted(records.items()):
            if record.label is not None:
                yield {
                    "run": task.run,
                    "case": task.case_id,
                    "variant": task.variant,
                    "iteration": task.iteration,
                    "assertion": task.assertion if is_unique else task.question,
                    "label": record.label,
                    "annotator": record.annotator,
                    "comment": record.comment,
                    "at": record.at,
                }


class ImportedLabels(NamedTuple):
    """What an import did: labels stored, labels that were there, labels older than a stored one."""

    stored: int
    unchanged: int
    outdated: int


@dataclass(frozen=True, slots=True)
class _Placed:
    """A label and the content that it is about; `dated`: whether the row has a time."""

    suite: str
    key: str
    form: AnswerForm
    record: LabelRecord
    dated: bool


class LabelImport:
    """Rows that are checked one by one, then stored all together; a context.

    Nothing is stored before `store_labels`, which may be called if no row had a mistake.
    """

    def __init__(self, store: ObjectStore, *, now: datetime) -> None:
        """Take the aware time of labels without one."""
        self._store = store
        self._now = _iso(now)
        self._stack = ExitStack()
        self._runs: dict[str, _RunIndex] = {}
        self._placed: dict[tuple[str, str, AnswerForm, str], _Placed] = {}

    def __enter__(self) -> LabelImport:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add(self, row: Any, problems: Problems) -> None:
        """Take a row, or note what is wrong with it."""
        written = row
        if isinstance(row, Mapping):
            written = {name: value for name, value in row.items() if value is not None}
        if not problems.check_shape(written, LabelRow):
            return
        try:
            task = self._index(written["run"]).find(written)
            at = _moment(written["at"]) if "at" in written else self._now
            annotator = check_annotator(written["annotator"])
            label = _label(task, written["label"])
        except (ValueError, EvalError) as error:
            problems.add((), str(error))
            return
        record = LabelRecord(annotator, label, at, written.get("comment") or None)
        placed = _Placed(task.suite, task.key, task.form, record, "at" in written)
        identity = (task.suite, task.key, task.form, str(record.annotator_key))
        earlier = self._placed.get(identity)
        # Of several rows the last one counts, by their times where both have one.
        if earlier is None or not (placed.dated and earlier.dated) or at >= earlier.record.at:
            self._placed[identity] = placed

    def store_labels(self) -> ImportedLabels:
        """Store the labels; those that say what is stored already are not stored again."""
        books: dict[str, LabelBook] = {}
        stored = unchanged = outdated = 0
        for placed in self._placed.values():
            book = books.setdefault(placed.suite, LabelBook(self._store, placed.suite))
            records = latest_by_annotator(book.labels_of(placed.key), placed.form)
            last = records.get(placed.record.annotator_key)
            if last is not None and placed.dated and placed.record.at < last.at:
                outdated += last.label != placed.record.label
                unchanged += last.label == placed.record.label
                continue
            record = add_label(self._store, placed.suite, placed.key, placed.record, book)
            if last is not None and record.number == last.number:
                unchanged += 1
            else:
                stored += 1
        return ImportedLabels(stored, unchanged, outdated)

    def _index(self, name: str) -> _RunIndex:
        index = self._runs.get(name)
        if index is None:
            questions = self._stack.enter_context(RunQuestions(choose_run(self._store, name)))
            index = self._runs[name] = _RunIndex(questions)
        return index


class _RunIndex:
    """The tasks of a run by their cases."""

    def __init__(self, questions: RunQuestions) -> None:
        self._run = questions.run.run_id
        self._tasks: dict[str, list[AnnotationTask]] = {}
        for task in questions.tasks():
            self._tasks.setdefault(task.case_id, []).append(task)

    def find(self, row: Mapping[str, Any]) -> AnnotationTask:
        """Return the task that a row means; raise `ValueError` with what would work."""
        case, name = row["case"], row["assertion"]
        tasks = self._tasks.get(case, [])
        if not tasks:
            hint = suggest(case, self._tasks)
            raise ValueError(f"run {self._run} asks nothing about a case {quote(case)}.{hint}")
        for key in ("variant", "iteration"):
            values = list(dict.fromkeys(getattr(task, key) for task in tasks))
            if key in row:
                tasks = [task for task in tasks if getattr(task, key) == row[key]]
                if not tasks:
                    choices = quote_all(list(map(str, values)))
                    raise ValueError(f"case {quote(case)} has no {key} {row[key]!r}, but {choices}")
        names = list(dict.fromkeys(task.assertion for task in tasks))
        named = [task for task in tasks if task.assertion == name]
        named = named or [task for task in tasks if task.question == name]
        if not named:
            hint = suggest(name, names)
            raise ValueError(f"case {quote(case)} has no assertion {quote(name)} for people.{hint}")
        if len({task.key for task in named}) == 1:
            # Of questions in the same words the label tells which one it answers.
            return next((task for task in named if _is_label(task, row["label"])), named[0])
        raise ValueError(
            f"{quote(name)} of case {quote(case)} is about several outputs or questions: "
            "name 'variant' and 'iteration', or write the question as 'assertion'"
        )


def _is_label(task: AnnotationTask, answer: object) -> bool:
    try:
        task.form.parse(answer)
    except ValueError:
        return False
    return True


def _label(task: AnnotationTask, answer: object) -> Label:
    try:
        return task.form.parse(answer)
    except ValueError as error:
        raise ValueError(f"label {quote(str(answer))} {error}") from None


def _moment(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"at {quote(text)} is no time such as 2026-05-18T10:00:00Z")
    return _iso(moment)


def _iso(moment: datetime) -> str:
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
