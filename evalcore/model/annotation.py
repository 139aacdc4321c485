"""Questions that people answer about an output, and what a suite says of the time for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

AWAITING: Final = "awaiting annotation"
"""The reason of items, and how messages of assertions begin, that lack labels."""

JUDGED_VALUES: Final = "judged"
"""In metadata of a script suite's case the expressions that people judge; in details of its
evidence their values."""

Label = str | int
"""An answer: one of the labels, or a step of the scale."""


class AfterDeadline(StrEnum):
    """What labels that are missing after the deadline make of the gates that need them."""

    INCONCLUSIVE = "inconclusive"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class AnnotationPolicy:
    """How long people have to answer, in seconds from the start of the run; None: no bound."""

    deadline_s: float | None = None
    then: AfterDeadline = AfterDeadline.INCONCLUSIVE


@dataclass(frozen=True, slots=True)
class AwaitedLabels:
    """How many labels of people a run lacks, and how many work items are blocked for them."""

    labels: int
    items: int

    @property
    def message(self) -> str:
        """The number of labels for people, after the reason."""
        are = "label is" if self.labels == 1 else "labels are"
        return f"{AWAITING}: {self.labels} {are} missing"


@dataclass(frozen=True, slots=True)
class QuestionAgreement:
    """How well annotators agree on a question, over the contents that several of them labelled.

    `measure` is `cohen_kappa` (two annotators) or `krippendorff_alpha`; `value` is at most 1, 0 is
    chance, and None where it cannot be computed.
    """

    question: str
    measure: str
    value: float | None
    contents: int
    annotators: int

    @property
    def message(self) -> str:
        """The agreement for people."""
        name = "Cohen's κ" if self.measure == "cohen_kappa" else "Krippendorff's α"
        value = "unknown" if self.value is None else f"{self.value:.2f}"
        outputs = "1 output" if self.contents == 1 else f"{self.contents} outputs"
        who = f"{self.annotators} annotators, {outputs}"
        return f"agreement on {self.question!r}: {name} {value} ({who})"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """What may be answered: one of `labels`, or a whole number from `scale[0]` to `scale[1]`.

    Exactly one of the two is not None.
    """

    labels: tuple[str, ...] | None = None
    scale: tuple[int, int] | None = None

    @property
    def choices(self) -> tuple[Label, ...]:
        """Every answer, in the order of the suite."""
        if self.labels is not None:
            return self.labels
        low, high = self.scale or (0, -1)
        return tuple(range(low, high + 1))

    def accepts(self, label: object) -> bool:
        """Whether a stored label is an answer of this form."""
        if self.labels is not None:
            return isinstance(label, str) and label in self.labels
        return isinstance(label, int) and not isinstance(label, bool) and label in self.choices

    def parse(self, answer: object) -> Label:
        """Return the label that a typed or imported answer means.

        Texts are stripped; a label may differ in case if that is unambiguous. Raises `ValueError`
        with the answers that are possible.
        """
        text = str(answer).strip()
        if self.labels is None:
            is_number = isinstance(answer, int | float | str) and not isinstance(answer, bool)
            step = _whole_number(text) if is_number else None
            if step is not None and step in self.choices:
                return step
        elif isinstance(answer, str):
            folded = [label for label in self.labels if label.casefold() == text.casefold()]
            if text in self.labels:
                return text
            if len(folded) == 1:
                return folded[0]
        raise ValueError(f"is not one of {self.described}")

    @property
    def described(self) -> str:
        """The possible answers as a short text."""
        if self.labels is not None:
            return ", ".join(self.labels)
        low, high = self.scale or (0, 0)
        return f"{low} to {high}"


def _whole_number(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


@dataclass(frozen=True, slots=True)
class HumanQuestion:
    """What an assertion asks of people; rows keep it in the result's details.

    `annotators` is how many labels are needed.
    """

    text: str
    form: AnswerForm
    annotators: int = 1
    instructions: str | None = None

    def details(self, key: str) -> dict[str, Any]:
        """Return the question about the content with this key as JSON values."""
        form = self.form
        choice = {"labels": form.labels} if form.labels is not None else {"scale": form.scale}
        values = {"key": key, "question": self.text, "annotators": self.annotators}
        more = {} if self.instructions is None else {"instructions": self.instructions}
        return {**values, **choice, **more}


def read_question(details: Mapping[str, Any]) -> tuple[str, HumanQuestion]:
    """Return the key of the content and the question that `HumanQuestion.details` made.

    Raises `LookupError` or `TypeError` for values that it did not make.
    """
    labels, scale = details.get("labels"), details.get("scale")
    form = AnswerForm(
        None if labels is None else tuple(labels), None if scale is None else (scale[0], scale[1])
    )
    question = HumanQuestion(
        details["question"], form, details["annotators"], details.get("instructions")
    )
    return details["key"], question


def content_key(question: str, case_input: Any, output: str) -> str:
    """Return the SHA-256 (hex) that names what a label is about.

    Of the JSON array of the three with sorted keys, without blanks, in ASCII: the order of an
    input's keys changes nothing.
    """
    content = [question, case_input, output]
    # Halves of surrogate pairs, which outputs can have, are written as escapes.
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()
