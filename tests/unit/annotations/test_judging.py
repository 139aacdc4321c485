"""From people's labels to one answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from evalcore.annotations.labels import LabelRecord, judged
from evalcore.model.annotation import AnswerForm

FORM = AnswerForm(labels=("yes", "no", "unsure"))
SCALE = AnswerForm(scale=(1, 5))
AT = "2026-05-18T10:00:00Z"

votes = st.lists(st.sampled_from(FORM.labels or ()), max_size=9)
ties = st.builds(
    lambda leaders, times: leaders * times,
    st.lists(st.sampled_from(FORM.labels or ()), min_size=2, unique=True),
    st.integers(1, 4),
).flatmap(st.permutations)
steps = st.lists(st.integers(1, 5), max_size=9)


def records(labels: Sequence[str | int]) -> list[LabelRecord]:
    return [LabelRecord(f"annotator-{number}", label, AT) for number, label in enumerate(labels)]


@given(votes, st.integers(1, 5))
def test_a_label_is_decided_exactly_if_enough_people_answered_and_one_leads(
    labels: list[str], annotators: int
) -> None:
    counts = Counter(labels)
    leaders = [label for label, n in counts.items() if n == max(counts.values())]
    consensus = judged(records(labels), FORM, annotators)

    decided = len(labels) >= annotators and len(leaders) == 1
    assert (consensus.label is not None) == decided == (consensus.missing == 0)
    if decided:
        assert consensus.label == leaders[0]
    elif len(labels) >= annotators:
        assert consensus.tied
        assert consensus.missing == 1
    else:
        assert consensus.missing == annotators - len(labels)


@given(votes.filter(bool), st.integers(1, 5), st.randoms())
def test_the_order_of_annotators_decides_nothing(
    labels: list[str], annotators: int, random: object
) -> None:
    given_labels = records(labels)
    shuffled = list(given_labels)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert judged(shuffled, FORM, annotators) == judged(given_labels, FORM, annotators)


@given(steps.filter(bool))
def test_a_scale_comes_to_its_mean(labels: list[int]) -> None:
    consensus = judged(records(labels), SCALE, len(labels))

    assert consensus.mean is not None
    assert abs(consensus.mean - sum(labels) / len(labels)) < 1e-12


@given(ties)
def test_a_tie_is_settled_by_one_more_label_for_one_of_them(labels: list[str]) -> None:
    assert judged(records(labels), FORM, 2).tied
    leader = Counter(labels).most_common(1)[0][0]

    assert judged(records([*labels, leader]), FORM, 2).label == leader


def test_the_last_label_of_an_annotator_counts() -> None:
    first = LabelRecord("ann", "no", AT, number=1)
    second = LabelRecord("Ann", "yes", AT, number=2)

    assert judged([second, first], FORM, 1).label == "yes"


def test_a_withdrawn_label_is_missing_again() -> None:
    first = LabelRecord("ann", "no", AT, number=1)

    assert judged([first, LabelRecord("ann", None, AT, number=2)], FORM, 1).missing == 1


def test_labels_that_the_question_no_longer_has_count_nothing() -> None:
    stale = [LabelRecord("ann", "maybe", AT), LabelRecord("bo", 3, AT)]

    assert judged(stale, FORM, 1).missing == 1
    assert judged(stale, SCALE, 1).mean == 3
