"""Queues of people's questions: which runs have some, those that are open, and their screens."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from evalcore.annotations.queue import AnnotationQueue, AnnotationTask, QueueProgress
from evalcore.model.annotation import AnswerForm, AwaitedLabels, Label
from evalcore.model.run import Manifest, State
from evalcore.storage.runs import StoredRun, find_run, read_awaited
from evalcore.storage.store import ObjectStore
from evalcore.viewer.catalogue import Catalogue, RunEntry
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


@dataclass(eq=False)
class _OpenedQueue:
    queue: AnnotationQueue
    version: tuple[Any, ...]
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    is_evicted: bool = False


class AnnotationQueues:
    """The queues of a store's runs, at most `MOST_QUEUES` of them open; safe in several threads."""

    def __init__(self, store: ObjectStore, catalogue: Catalogue) -> None:
        self._store, self._catalogue = store, catalogue
        self._opened: OrderedDict[str, _OpenedQueue] = OrderedDict()
        self._opening: dict[str, threading.Lock] = {}
        self._awaited: dict[str, AwaitedLabels | None] = {}
        self._lock = threading.Lock()

    @contextmanager
    def open(self, run_id: str) -> Iterator[AnnotationQueue]:
        """Give the queue of a run; other requests for the same run wait meanwhile.

        Raises `EvalError` if the run cannot be read.
        """
        opened = self._take(run_id)
        try:
            with opened.lock:
                yield opened.queue
        finally:
            self._release(opened)

    def awaiting(self) -> list[AwaitingRun]:
        """Return the runs that were decided without all labels, newest first, at most 100.

        Those that a later run has graded again are left out: that run has the same labels. The
        newest ones are opened, for what they lack now.
        """
        runs = self._catalogue.runs()
        regraded = {source for run in runs if (source := source_of(run)) is not None}
        listed: list[AwaitingRun] = []
        for entry in runs:
            if entry.id in regraded or not _has_blocked(entry.manifest):
                continue
            awaited = self._awaited_of(entry.id)
            if awaited is not None:
                is_newest = len(listed) < MOST_QUEUES // 2
                progress = self._progress(entry.id) if is_newest else None
                listed.append(AwaitingRun(entry, awaited, progress))
                if len(listed) == _MOST_LISTED:
                    break
        return listed

    def regraded(self, run_id: str) -> RunEntry | None:
        """Return the newest run that has graded a run again; None if there is none."""
        runs = self._catalogue.runs()
        return next((run for run in runs if source_of(run) == run_id), None)

    def close(self) -> None:
        """Close the queues that no request uses, and the others when they are let go."""
        with self._lock:
            evicted = [self._evict(name) for name in list(self._opened)]
        _close(evicted)

    def _progress(self, run_id: str) -> QueueProgress:
        with self.open(run_id) as queue:
            return queue.refresh()

    def _awaited_of(self, run_id: str) -> AwaitedLabels | None:
        if run_id not in self._awaited:
            self._awaited[run_id] = read_awaited(find_run(self._store, run_id))
        return self._awaited[run_id]

    def _take(self, run_id: str) -> _OpenedQueue:
        with self._lock:
            opening = self._opening.setdefault(run_id, threading.Lock())
        with opening:
            run = find_run(self._store, run_id)
            version = _version(run)
            evicted: list[AnnotationQueue | None] = []
            with self._lock:
                opened = self._opened.get(run_id)
                if opened is not None and opened.version == version:
                    self._opened.move_to_end(run_id)
                    opened.users += 1
                    return opened
            queue = AnnotationQueue(run)
            with self._lock:
                if run_id in self._opened:
                    evicted.append(self._evict(run_id))
                opened = self._opened[run_id] = _OpenedQueue(queue, version, users=1)
                while len(self._opened) > MOST_QUEUES:
                    evicted.append(self._evict(next(iter(self._opened))))
        _close(evicted)
        return opened

    def _release(self, opened: _OpenedQueue) -> None:
        with self._lock:
            opened.users -= 1
            is_unused = opened.is_evicted and not opened.users
        if is_unused:
            opened.queue.close()

    def _evict(self, run_id: str) -> AnnotationQueue | None:
        """Forget a queue; return it if no request uses it."""
        opened = self._opened.pop(run_id)
        opened.is_evicted = True
        return None if opened.users else opened.queue


def source_of(entry: RunEntry) -> str | None:
    """Return the run whose evidence a completed run has graded again."""
    manifest = entry.manifest
    if manifest is None or manifest.state is not State.COMPLETED:
        return None
    source = manifest.settings.get("reuse")
    return source if isinstance(source, str) else None


def _has_blocked(manifest: Manifest | None) -> bool:
    counts = None if manifest is None else manifest.counts
    return counts is not None and counts.get("blocked", 0) > 0


def _close(queues: list[AnnotationQueue | None]) -> None:
    for queue in queues:
        if queue is not None:
            queue.close()


def _version(run: StoredRun) -> tuple[Any, ...]:
    """Return what differs whenever the run's questions would."""
    manifest = run.manifest()
    shards = () if manifest.state is State.COMPLETED else tuple(sorted(run.written_shards()))
    return manifest.state, manifest.ended_at, shards


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
