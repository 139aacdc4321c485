"""From people's labels to one answer: the majority of labels, the mean of a scale."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from evalcore.annotations.labels import LabelRecord
from evalcore.model.annotation import AnswerForm


@dataclass(frozen=True, slots=True)
class Consensus:
    """What people's labels come to; `annotators` are the keys of those whose `votes` count.

    `label` is the majority's, `mean` that of a scale; both are None while `missing` labels are
    awaited. `tied` says that one is awaited only because two labels have equally many votes.
    """

    votes: tuple[str | int, ...]
    missing: int
    annotators: tuple[str, ...] = ()
    label: str | None = None
    mean: float | None = None
    tied: bool = False


def latest_by_annotator(
    records: Iterable[LabelRecord], form: AnswerForm | None = None
) -> dict[str, LabelRecord]:
    """Return the last record of each annotator by their key; withdrawn ones are included.

    With a form, labels that it does not have are left out: questions in the same words with other
    answers share the records of a content.
    """
    latest: dict[str, LabelRecord] = {}
    for record in records:
        if form is not None and record.label is not None and not form.accepts(record.label):
            continue
        key = record.annotator_key
        # Two spellings of a name have numbers of their own in the stores of earlier versions.
        if key not in latest or _order(latest[key]) < _order(record):
            latest[key] = record
    return latest


def _order(record: LabelRecord) -> tuple[int, str]:
    return record.number, record.at


def judged(records: Sequence[LabelRecord], form: AnswerForm, annotators: int) -> Consensus:
    """Return what the labels come to.

    The last label of each annotator counts; labels that the form does not have count nothing.
    With fewer than `annotators` labels the rest is missing. A tie of labels lacks one more, until
    one label has more votes than any other.
    """
    counted = {
        name: record.label
        for name, record in sorted(latest_by_annotator(records, form).items())
        if record.label is not None
    }
    votes, names = tuple(counted.values()), tuple(counted)
    missing = max(0, annotators - len(votes))
    if missing or not votes:
        return Consensus(votes, max(1, missing), names)
    if form.labels is None:
        return Consensus(votes, 0, names, mean=fsum(map(float, votes)) / len(votes))
    (first, most), *runners_up = Counter(map(str, votes)).most_common(2)
    if runners_up and runners_up[0][1] == most:
        return Consensus(votes, 1, names, tied=True)
    return Consensus(votes, 0, names, label=first)
