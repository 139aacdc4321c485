"""What a screen of the annotation queue shows: one content, its question, a key for each answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from evalcore.annotations.queue import AnnotationQueue, AnnotationTask, QueueProgress
from evalcore.model.annotation import AnswerForm, Label
from evalcore.viewer.conversations import MessageList, conversation_of
from evalcore.viewer.texts import PageText, TextBudget

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
