"""What people are asked about a run, in an order of its own for each annotator."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from evalcore.annotations.labels import (
    DamagedLabel,
    LabelBook,
    LabelRecord,
    add_label,
    check_annotator,
    judged,
    latest_by_annotator,
)
from evalcore.errors import (
    Damage,
    DamagedRunError,
    ResultsDroppedError,
    UnplannedRunError,
    UsageError,
)
from evalcore.model.annotation import (
    AnswerForm,
    HumanQuestion,
    Label,
    QuestionAgreement,
    read_question,
)
from evalcore.model.run import Manifest
from evalcore.model.suite import Case
from evalcore.planning.spool import PlanPartError, part_inputs
from evalcore.sql.rows import UnreadableRowsError, read_details, read_output, read_questions
from evalcore.statistics.agreement import annotator_agreement
from evalcore.storage.layout import blob_key, suite_key
from evalcore.storage.runs import StoredRun

_KEPT_PARTS = 8
_CACHED_PARTS = 64


@dataclass(frozen=True, slots=True)
class AnnotationTask:
    """One question about one content of a run: the first item that has it.

    `is_part_of_output` says that it is not about the whole output of the item but about a block's
    or what stands at a path. `variant` and `iteration` are for programs: an annotator should not
    see them.
    """

    run: str
    suite: str
    key: str
    item: int
    case_id: str
    variant: str
    iteration: int
    assertion: str
    subject: HumanQuestion
    is_part_of_output: bool = False

    @property
    def id(self) -> str:
        """What tells the tasks of a run apart: questions in the same words may differ in form."""
        return hashlib.sha256(f"{self.key} {self.form}".encode()).hexdigest()

    @property
    def question(self) -> str:
        """What is asked."""
        return self.subject.text

    @property
    def instructions(self) -> str | None:
        """How to answer."""
        return self.subject.instructions

    @property
    def form(self) -> AnswerForm:
        """What may be answered."""
        return self.subject.form

    @property
    def annotators(self) -> int:
        """How many labels are needed."""
        return self.subject.annotators


class TaskContent(NamedTuple):
    """What is labelled: the case's input (a JSON value) and the output."""

    input: Any
    output: str


class RunQuestions:
    """The questions of one run in the store; close it, or use it as a context.

    Its results may be incomplete: what is executed later is not part of it.
    """

    def __init__(self, run: StoredRun) -> None:
        """Raise `EvalError` if the run has no results that can be read."""
        self.run = run
        self.manifest: Manifest = run.manifest()
        if not self.manifest.is_planned:
            raise UnplannedRunError(run.run_id)
        if run.are_results_dropped():
            raise ResultsDroppedError(run.run_id)
        shards = sorted(run.written_shards())
        self._stack = ExitStack()
        files = self._stack.enter_context(run.result_files(self.manifest.plan, shards))
        self._files = dict(zip(shards, files, strict=True))
        # Compressed parts are small, and an annotator's order goes through all of them.
        self._plan_part = lru_cache(_CACHED_PARTS)(run.plan_part)
        self._cases = lru_cache(_KEPT_PARTS)(self._read_cases)

    def __enter__(self) -> RunQuestions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was fetched."""
        self._stack.close()

    @property
    def _parts(self) -> Sequence[Path]:
        return list(self._files.values())

    def tasks(self) -> Iterator[AnnotationTask]:
        """Yield a task for each assertion of each item that asks people, in the items' order."""
        questions: dict[HumanQuestion, HumanQuestion] = {}
        try:
            for row in read_questions(self._parts):
                details = orjson.loads(row.details)
                key, question = read_question(details["annotation"])
                # Thousands of items ask the same.
                question = questions.setdefault(question, question)
                yield AnnotationTask(
                    self.run.run_id,
                    self.manifest.suite,
                    key,
                    row.item,
                    row.case_id,
                    row.variant,
                    row.iteration,
                    row.assertion,
                    question,
                    "output" in details,
                )
        except (UnreadableRowsError, ValueError, LookupError, TypeError) as error:
            raise self._damaged("results/", f"do not say what people are asked: {error}") from error

    def content(self, task: AnnotationTask) -> TaskContent:
        """Return the input and the whole output that the task is about."""
        part, position = self._position(task)
        try:
            (case_input,) = part_inputs(self._plan_part(part), {position})
        except PlanPartError as error:
            raise self._damaged(f"plan/cases-{part:05d}", str(error)) from error
        return TaskContent(case_input, self._output(task))

    def case(self, task: AnnotationTask) -> Case:
        """Return the case that the task's item is of."""
        part, position = self._position(task)
        return self._cases(part)[position]

    def _position(self, task: AnnotationTask) -> tuple[int, int]:
        plan = self.manifest.plan
        return divmod(task.item // plan.items_per_case, plan.part_cases)

    def _read_cases(self, part: int) -> list[Case]:
        return self.run.cases(part, self.manifest.plan)

    def _output(self, task: AnnotationTask) -> str:
        plan = self.manifest.plan
        shard = next(each for each in self._files if task.item in plan.shard_items(each))
        path, part = self._files[shard], f"results/{shard:05d}.parquet"
        try:
            if task.is_part_of_output:
                details = orjson.loads(read_details(path, task.item, task.key) or "{}")
                return str(details.get("output", ""))
            row = read_output(path, task.item)
        except UnreadableRowsError as error:
            raise self._damaged(part, str(error)) from error
        if row is None:
            raise self._damaged(part, f"has no item {task.item}")
        if row.output_ref is None:
            return row.output or ""
        data = self.run.store.get(blob_key(row.output_ref)).data
        return data.decode("utf-8", "surrogatepass")

    def _damaged(self, part: str, reason: str) -> DamagedRunError:
        return DamagedRunError(self.run.run_id, (Damage(part, reason),))


@dataclass(frozen=True, slots=True)
class TaskState:
    """How far a task is: `labels` are counted, `missing` are awaited.

    `annotators` are the names of those who have answered.
    """

    labels: int
    missing: int
    annotators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """How far a queue is: tasks, those that have all labels, and the labels that are missing."""

    tasks: int
    complete: int
    missing: int


class AnnotationQueue:
    """What people are asked about a run; safe in several threads, and with others at work.

    `tasks` has each content once for each form of answers, in the order of the plan, whether it
    has labels or not. Each annotator has an order of their own, random and always the same. Close
    it, or use it as a context.
    """

    def __init__(self, run: StoredRun) -> None:
        """Read the questions of the run and the labels of its suite; raise `EvalError`."""
        self._questions = RunQuestions(run)
        self._store = run.store
        self.run_id = run.run_id
        self.suite = self._questions.manifest.suite
        self.book = LabelBook(run.store, self.suite)
        self._lock = threading.Lock()
        self._left: dict[str, deque[AnnotationTask]] = {}
        try:
            self.tasks = _distinct(self._questions.tasks())
            self.book.refresh()
        except BaseException:  # also an interrupt must not leave the tables open
            self.close()
            raise
        self._by_id = {task.id: task for task in self.tasks}
        self._missing = {task.id: self._state(task).missing for task in self.tasks}

    def __enter__(self) -> AnnotationQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what was fetched of the run."""
        self._questions.close()

    @property
    def damaged(self) -> tuple[DamagedLabel, ...]:
        """Label objects that cannot be read."""
        return self.book.damaged

    @property
    def progress(self) -> QueueProgress:
        """How far the queue is, by the labels that this process has read."""
        missing = self._missing.values()
        return QueueProgress(len(self.tasks), [*missing].count(0), sum(missing))

    def find(self, task_id: str) -> AnnotationTask:
        """Return a task by its id; raise `UsageError` if the run has none."""
        task = self._by_id.get(task_id)
        if task is None:
            raise UsageError(f"run {self.run_id} asks nothing about {task_id!r}")
        return task

    def state(self, task: AnnotationTask) -> TaskState:
        """Return how far a task is, by the labels that the store has now."""
        self.book.refresh(task.key)
        return self._note_state(task)

    def refresh(self) -> QueueProgress:
        """Read the labels that others have stored; return how far the queue is with them."""
        self.book.refresh()
        for task in self.tasks:
            self._note_state(task)
        return self.progress

    def next_task(self, annotator: str) -> AnnotationTask | None:
        """Return the next task in the annotator's order that lacks a label of theirs.

        None if there is none: all have enough labels, or this annotator has answered them. A task
        is the next one until it is answered or skipped.
        """
        left = self._order(annotator)
        while True:
            with self._lock:
                if not left:
                    return None
                task = left[0]
            if self._is_open(task, annotator):
                return task
            with self._lock, suppress(ValueError):
                left.remove(task)

    def label_of(self, task: AnnotationTask, annotator: str) -> LabelRecord | None:
        """Return what the annotator says of a content; None if nothing, or no more."""
        record = self._label(task, annotator)
        return None if record is None or record.label is None else record

    def skip(self, annotator: str, task: AnnotationTask) -> None:
        """Put a task at the end of the annotator's order."""
        left = self._order(annotator)
        with self._lock, suppress(ValueError):
            left.remove(task)
            left.append(task)

    def content(self, task: AnnotationTask) -> TaskContent:
        """Return what is labelled."""
        return self._questions.content(task)

    def case(self, task: AnnotationTask) -> Case:
        """Return the case of a task, with what is expected of its output."""
        return self._questions.case(task)

    def answer(
        self,
        task: AnnotationTask,
        annotator: str,
        answer: object,
        *,
        at: str,
        comment: str | None = None,
        seconds: float | None = None,
    ) -> LabelRecord:
        """Store an answer; it replaces what the annotator said of the content before.

        Raises `UsageError` for an answer that the question does not have.
        """
        try:
            label = task.form.parse(answer)
        except ValueError as error:
            raise UsageError(f"{answer!r} {error}") from None
        record = LabelRecord(check_annotator(annotator), label, at, comment or None, seconds)
        record = add_label(self._store, self.suite, task.key, record, self.book)
        self.state(task)
        left = self._order(annotator)
        with self._lock, suppress(ValueError):
            left.remove(task)
        return record

    def undo(self, annotator: str, *, at: str) -> AnnotationTask | None:
        """Withdraw the annotator's last label on a task of this run; return the task, now the next.

        None if there is no label to withdraw.
        """
        last: tuple[str, int, AnnotationTask] | None = None
        contents = self.book.contents
        for task in self.tasks:
            record = self._label(task, annotator) if task.key in contents else None
            if record is not None and record.label is not None:
                last = max(last or ("", 0, task), (record.at, record.number, task), key=_moment)
        if last is None:
            return None
        task = last[2]
        withdrawn = LabelRecord(annotator, None, at)
        add_label(self._store, self.suite, task.key, withdrawn, self.book)
        self.state(task)
        left = self._order(annotator)
        with self._lock:
            with suppress(ValueError):
                left.remove(task)
            left.appendleft(task)
        return task

    def _order(self, annotator: str) -> deque[AnnotationTask]:
        name = str(suite_key(check_annotator(annotator)))
        with self._lock:
            order = self._left.get(name)
        if order is None:
            order = deque(sorted(self.tasks, key=lambda task: _rank(self.run_id, name, task.id)))
            with self._lock:
                order = self._left.setdefault(name, order)
        return order

    def _is_open(self, task: AnnotationTask, annotator: str) -> bool:
        # What this process has read may be enough to tell, and costs nothing.
        for refreshed in (False, True):
            state = self.state(task) if refreshed else self._state(task)
            if not state.missing or self.label_of(task, annotator) is not None:
                return False
        return True

    def _label(self, task: AnnotationTask, annotator: str) -> LabelRecord | None:
        name = suite_key(check_annotator(annotator))
        return latest_by_annotator(self.book.content_records(task.key), task.form).get(name)

    def _note_state(self, task: AnnotationTask) -> TaskState:
        state = self._state(task)
        self._missing[task.id] = state.missing
        return state

    def _state(self, task: AnnotationTask) -> TaskState:
        records = self.book.content_records(task.key)
        if not records:
            return TaskState(0, task.annotators, ())
        consensus = judged(records, task.form, task.annotators)
        latest = latest_by_annotator(records, task.form).values()
        names = tuple(sorted(each.annotator for each in latest if each.label is not None))
        return TaskState(len(consensus.votes), consensus.missing, names)


def _distinct(tasks: Iterable[AnnotationTask]) -> tuple[AnnotationTask, ...]:
    """Return the first task of each content and form: one answer is an answer to all of them."""
    distinct: dict[tuple[str, AnswerForm], AnnotationTask] = {}
    for task in tasks:
        first = distinct.get((task.key, task.form))
        if first is None or task.annotators > first.annotators:
            distinct[task.key, task.form] = task
    return tuple(distinct.values())


def _rank(run_id: str, annotator: str, task_id: str) -> bytes:
    return hashlib.sha256(f"{run_id}/{annotator}/{task_id}".encode()).digest()


def _moment(entry: tuple[str, int, AnnotationTask]) -> tuple[str, int]:
    return entry[:2]


class LabelledContent(NamedTuple):
    """The labels of one content by annotator; `numeric` says that they are steps of a scale."""

    question: str
    numeric: bool
    votes: Mapping[str, Label]


def question_agreements(contents: Iterable[LabelledContent]) -> tuple[QuestionAgreement, ...]:
    """Return the agreement on each question that several annotators answered, by question."""
    units: dict[tuple[str, bool], list[Mapping[str, Label]]] = {}
    for content in contents:
        if len(content.votes) > 1:
            units.setdefault((content.question, content.numeric), []).append(content.votes)
    agreements = []
    for (question, numeric), votes in sorted(units.items()):
        measured = annotator_agreement(votes, numeric=numeric)
        agreements.append(
            QuestionAgreement(
                question, measured.measure, measured.value, measured.units, measured.annotators
            )
        )
    return tuple(agreements)
