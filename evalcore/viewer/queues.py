"""Queues of people's questions: which runs have some, those that are open, and their screens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from evalcore.annotations.queue import AnnotationQueue, AnnotationTask, QueueProgress
from evalcore.model.annotation import AnswerForm, AwaitedLabels, Label
from evalcore.model.run import State
from evalcore.storage.runs import find_run, read_awaited
from evalcore.storage.store import ObjectStore
from evalcore.viewer.catalogue import Catalogue, RunEntry
from evalcore.viewer.shelf import Shelf
from evalcore.viewer.views.opened import run_version
from evalcore.viewer.views.texts import MessageList, PageText, TextBudget, conversation_of

MOST_QUEUES: Final = 8
_MOST_LISTED: Final = 100


class AwaitingRun(NamedTuple):
    """A run that was decided without all labels: what it lacked then, and how far it is now.

    `progress` is None for a run whose queue is not open.
    """

    entry: RunEntry
    awaited: AwaitedLabels
    progress: QueueProgress | None


class AnnotationQueues:
    """The queues of a store's runs, a few of them open; safe in several threads."""

    def __init__(self, store: ObjectStore, catalogue: Catalogue) -> None:
        self._store, self._catalogue = store, catalogue
        self._shelf = Shelf[AnnotationQueue](MOST_QUEUES, close=AnnotationQueue.close)
        self._awaited: dict[str, AwaitedLabels | None] = {}
        self.close = self._shelf.close

    @contextmanager
    def open(self, run_id: str) -> Iterator[AnnotationQueue]:
        """Give the queue of a run; other requests for the same run wait meanwhile.

        Raises `EvalError` if the run cannot be read.
        """
        run = find_run(self._store, run_id)
        version = run_version(run, run.manifest())
        with self._shelf.use(run_id, lambda: AnnotationQueue(run), version=version) as queue:
            yield queue

    def awaiting(self) -> list[AwaitingRun]:
        """Return the runs that were decided without all labels, newest first, at most 100.

        Those that a later run has graded again are left out: that run has the same labels. The
        newest ones are opened, for what they lack now.
        """
        runs = self._catalogue.runs()
        regraded = {source_of(run) for run in runs}
        listed: list[AwaitingRun] = []
        for entry in runs:
            counts = entry.manifest.counts if entry.manifest is not None else None
            if entry.id in regraded or not counts or not counts.get("blocked"):
                continue
            if entry.id not in self._awaited:
                self._awaited[entry.id] = read_awaited(find_run(self._store, entry.id))
            awaited, progress = self._awaited[entry.id], None
            if awaited is None:
                continue
            if len(listed) < MOST_QUEUES // 2:
                with self.open(entry.id) as queue:
                    progress = queue.refresh()
            listed.append(AwaitingRun(entry, awaited, progress))
        return listed[:_MOST_LISTED]

    def regraded(self, run_id: str) -> RunEntry | None:
        """Return the newest run that has graded a run again; None if there is none."""
        return next((run for run in self._catalogue.runs() if source_of(run) == run_id), None)


def source_of(entry: RunEntry) -> str | None:
    """Return the run whose evidence a completed run has graded again."""
    manifest = entry.manifest
    if manifest is None or manifest.state is not State.COMPLETED:
        return None
    source = manifest.settings.get("reuse")
    return source if isinstance(source, str) else None


_CHARACTERS: Final = 60_000
# Keys that the page itself has: comment, help, rows, skip, up, undo.
_RESERVED: Final = frozenset("cjksuz")


class AnswerChoice(NamedTuple):
    """An answer with the keys that give it; `letter` is empty where it is not unique."""

    label: Label
    digit: str
    letter: str

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that give the answer."""
        return tuple(key for key in (self.digit, self.letter) if key)


class AnnotationScreen(NamedTuple):
    """One task as an annotator sees it: nothing of the variant or of other people's answers.

    `conversation` stands for `input` where that is one.
    """

    task: AnnotationTask
    conversation: MessageList | None
    input: PageText | None
    output: PageText | None
    choices: tuple[AnswerChoice, ...]


def annotation_screen(queue: AnnotationQueue, task: AnnotationTask) -> AnnotationScreen:
    """Return the screen of a task; raise `EvalError` if its content cannot be read."""
    content = queue.content(task)
    budget = TextBudget()
    conversation = conversation_of(content.input, budget)
    return AnnotationScreen(
        task,
        conversation,
        None if conversation is not None else budget.cut(content.input, _CHARACTERS),
        budget.cut(content.output, _CHARACTERS),
        answer_choices(task.form),
    )


def answer_choices(form: AnswerForm) -> tuple[AnswerChoice, ...]:
    """Return the answers with their keys: a step of a scale is its own key, if that is a digit."""
    labels = form.choices
    digits = _digits(labels)
    initials = [str(label)[:1].casefold() for label in labels]
    counts = Counter(initials)
    return tuple(
        AnswerChoice(label, digit, initial if _is_key(initial, counts) else "")
        for label, digit, initial in zip(labels, digits, initials, strict=True)
    )


def is_complete(progress: QueueProgress) -> bool:
    """Whether a run with questions lacks no label."""
    return progress.tasks > 0 and not progress.missing


def _digits(labels: Sequence[Label]) -> Sequence[str]:
    if all(isinstance(label, int) and 0 <= label <= 9 for label in labels):
        return [str(label) for label in labels]
    return [str(number) if number <= 9 else "" for number in range(1, len(labels) + 1)]


def _is_key(initial: str, counts: Counter[str]) -> bool:
    return initial.isalpha() and counts[initial] == 1 and initial not in _RESERVED
