"""How well the annotators of a run agree, question by question."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from evalcore.annotations.labels import latest_by_annotator
from evalcore.annotations.queue import AnnotationQueue
from evalcore.model.annotation import Label, QuestionAgreement
from evalcore.statistics.agreement import annotator_agreement


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


def labelled_contents(queue: AnnotationQueue) -> Iterator[LabelledContent]:
    """Yield the contents of a run that have labels, as the store has them."""
    for task in queue.tasks:
        latest = latest_by_annotator(queue.book.content_records(task.key), task.form)
        votes = {
            name: record.label
            for name, record in sorted(latest.items())
            if record.label is not None
        }
        if votes:
            yield LabelledContent(task.question, task.form.labels is None, votes)
