"""The queue of a run: what is still to be labelled, in an order of its own for each annotator."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from evalcore.annotations.judging import judged, latest_by_annotator
from evalcore.annotations.label_store import DamagedLabel, LabelBook, add_label, withdraw_label
from evalcore.annotations.labels import LabelRecord, check_annotator
from evalcore.annotations.tasks import AnnotationTask, RunQuestions, TaskContent
from evalcore.errors import UsageError
from evalcore.model.annotation import AnswerForm
from evalcore.model.suite import Case
from evalcore.storage.layout import suite_key
from evalcore.storage.runs import StoredRun, find_run
from evalcore.storage.store import ObjectStore


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
        self._missing_labels = sum(self._missing.values())
        self._complete = sum(not missing for missing in self._missing.values())

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
        with self._lock:
            return QueueProgress(len(self.tasks), self._complete, self._missing_labels)

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
        record = add_label(self._store, self.suite, task.key, record, self.book, task.form)
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
        self._withdraw(task, annotator, at)
        left = self._order(annotator)
        with self._lock:
            with suppress(ValueError):
                left.remove(task)
            left.appendleft(task)
        return task

    def _withdraw(self, task: AnnotationTask, annotator: str, at: str) -> None:
        """Withdraw a label; what the annotator said in other forms of the question stays."""
        same_content = [each for each in self.tasks if each.key == task.key]
        standing = [
            (each, record)
            for each in same_content
            if (record := self.label_of(each, annotator)) and not task.form.accepts(record.label)
        ]
        withdraw_label(self._store, self.suite, task.key, annotator, at=at, book=self.book)
        for each, record in standing:
            add_label(self._store, self.suite, task.key, record, self.book, each.form)
        for each in same_content:
            self.state(each)

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
        with self._lock:
            before = self._missing[task.id]
            self._missing[task.id] = state.missing
            self._missing_labels += state.missing - before
            self._complete += (not state.missing) - (not before)
        return state

    def _state(self, task: AnnotationTask) -> TaskState:
        records = self.book.content_records(task.key)
        if not records:
            return TaskState(0, task.annotators, ())
        consensus = judged(records, task.form, task.annotators)
        latest = latest_by_annotator(records, task.form).values()
        names = tuple(sorted(each.annotator for each in latest if each.label is not None))
        return TaskState(len(consensus.votes), consensus.missing, names)


def awaiting(store: ObjectStore, run: StoredRun | str) -> AnnotationQueue:
    """Return the queue of a run (by its id); raise `EvalError` if the run cannot be read."""
    return AnnotationQueue(find_run(store, run) if isinstance(run, str) else run)


def _distinct(tasks: Iterable[AnnotationTask]) -> tuple[AnnotationTask, ...]:
    """Return the first task of each content and form: one answer is an answer to all of them."""
    by_key: dict[str, dict[AnswerForm, AnnotationTask]] = {}
    distinct: dict[str, AnnotationTask] = {}
    for task in tasks:
        forms = by_key.setdefault(task.key, {})
        first = forms.get(task.form)
        if first is None or task.annotators > first.annotators:
            number = len(forms) if first is None else first.form_number
            numbered = forms[task.form] = replace(task, form_number=number)
            distinct[numbered.id] = numbered
    return tuple(distinct.values())


def _rank(run_id: str, annotator: str, task_id: str) -> bytes:
    return hashlib.sha256(f"{run_id}/{annotator}/{task_id}".encode()).digest()


def _moment(entry: tuple[str, int, AnnotationTask]) -> tuple[str, int]:
    return entry[:2]
