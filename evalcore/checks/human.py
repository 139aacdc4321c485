"""The check that people make: they answer a question about the output (evalcore.annotations)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Required

from pydantic import Field
from typing_extensions import TypedDict

from evalcore.annotations.labels import Consensus, judged
from evalcore.checks.base import AssertionValueError, Check, Reader, Subject
from evalcore.model.annotation import (
    AWAITING,
    JUDGED_VALUES,
    AnswerForm,
    HumanQuestion,
    content_key,
)
from evalcore.model.assertion import Assertion, AssertionResult, Outcome, Verdict, blocked, broken
from evalcore.model.scoring import reaches
from evalcore.shapes import Count, Share, Text
from evalcore.wording import counted, json_text, suggest


def judged_variable(subject: Subject, expression: str) -> str | Verdict:
    """Return the text of the expression after the test's statements, or that it has none."""
    values = subject.evidence.details.get(JUDGED_VALUES) or {}
    value = values.get(expression)
    if value is None:
        return broken(f"'{expression}' was not evaluated in this run; execute the suite again")
    if "text" not in value:
        return broken(f"'{expression}': {value.get('error')}")
    return str(value["text"])


def judged_handle(subject: Subject, target: Mapping[str, Any]) -> str | Verdict:
    """Return what stands at an output handle of a block, or why nothing does (blocked)."""
    from evalcore.checks.conditions import AssertionTarget, addressed_value, block_handles

    handles = block_handles(subject.evidence)
    value = addressed_value(AssertionTarget.model_validate(dict(target)), handles)
    if isinstance(value, Verdict):
        return blocked(value.message)
    return value.value if isinstance(value.value, str) else json_text(value.value)


MOST_SCALE_STEPS = 101


class Human(Check):
    """People answer `question`: most of their labels are `expected`, or the mean on the `scale`
    reaches `min_score`. Blocked until there are `annotators` labels, and while labels tie.

    `of` is an expression of a script suite's test, `handle` addresses a block's output handle.
    """

    expected_field: ClassVar[str] = "expected"

    question: str
    labels: list[str] | None = None
    scale: list[int] | None = None
    expected: str | None = None
    min_score: float | None = None
    annotators: int = 1
    instructions: str | None = None
    of: str | None = None
    handle: Mapping[str, Any] | None = None

    @property
    def form(self) -> AnswerForm:
        """What may be answered."""
        if self.labels is not None:
            return AnswerForm(labels=tuple(self.labels))
        low, high = self.scale or (0, 1)
        return AnswerForm(scale=(low, high))

    def check(self, subject: Subject) -> Verdict:
        """Look for labels of this output; the score is 1 or 0, of a scale, too."""
        text: str | Verdict = subject.output
        if self.of is not None:
            text = judged_variable(subject, self.of)
        elif self.handle is not None:
            text = judged_handle(subject, self.handle)
        return text if isinstance(text, Verdict) else self._verdict(subject._replace(output=text))

    def _verdict(self, subject: Subject) -> Verdict:
        key = content_key(self.question, subject.case.input, subject.output)
        form = self.form
        question = HumanQuestion(self.question, form, self.annotators, self.instructions)
        consensus = judged(subject.context.labels_of(key), form, self.annotators)
        details: dict[str, Any] = {"annotation": question.details(key)}
        if consensus.votes:
            details["votes"] = dict(zip(consensus.annotators, consensus.votes, strict=True))
        if subject.output != subject.evidence.output:
            # What is labelled is not the item's output, so that nothing else holds it.
            details["output"] = subject.output
        if consensus.missing:
            details["missing"] = consensus.missing
            message = f"{AWAITING}: {_progress(consensus, self.annotators)}"
            return Verdict(Outcome.BLOCKED, 0.0, message, details=details)
        passes, mean, label = self.passes(consensus), consensus.mean, consensus.label
        if mean is None:
            count = consensus.votes.count(label or "")
            answer, actual = f"people say {label} ({count} of {len(consensus.votes)})", label
        else:
            details["mean"] = mean
            actual, sign = f"mean {mean:.4g}", "≥" if passes else "<"
            answer = f"{actual} {sign} {self.min_score or 0.0:g} (of {form.described})"
        outcome = Outcome.PASSED if passes else Outcome.FAILED
        shown = None if passes else actual
        return Verdict(outcome, float(passes), answer, shown, details=details)

    def passes(self, consensus: Consensus) -> bool:
        """Whether labels of which none is missing are what is expected."""
        if consensus.mean is None:
            return consensus.label == self.expected
        return reaches(consensus.mean, self.min_score or 0.0)

    def expected_text(self) -> str | None:
        """Return the label, or the least mean."""
        return self.expected if self.min_score is None else f"≥ {self.min_score:g}"

    @classmethod
    def read(cls, written: Mapping[str, Any], _reader: Reader) -> tuple[str, dict[str, Any]]:
        """Return the check that `human` means."""
        return "human", cls.stored_fields(written)

    @staticmethod
    def stored_fields(written: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields that the plan stores of a question.

        Raises `AssertionValueError` for keys that do not fit together.
        """
        if ("labels" in written) == ("scale" in written):
            raise AssertionValueError(
                "people need something to answer: either 'labels', such as [yes, no], "
                "or 'scale', such as [1, 5]"
            )
        fields = _read_labels(written) if "labels" in written else _read_scale(written)
        more = {"question": written["question"], "annotators": written.get("annotators", 1)}
        if "instructions" in written:
            more["instructions"] = written["instructions"]
        return {**more, **fields}

    @classmethod
    def required_score(cls, written: Mapping[str, Any]) -> float | None:
        """Return the score that is required; with `required: true` the check has to pass."""
        required = written.get("required")
        return None if required in (None, False) else float(required)


def _read_labels(written: Mapping[str, Any]) -> dict[str, Any]:
    labels: list[str] = written["labels"]
    if "min_score" in written:
        raise AssertionValueError("belongs to 'scale'; 'labels' have 'expected'", "min_score")
    if len({label.strip().casefold() for label in labels}) < len(labels):
        raise AssertionValueError("two labels differ in nothing but case or blanks", "labels")
    expected = written.get("expected")
    if expected is None:
        raise AssertionValueError("'expected' is required: the label that passes")
    if expected not in labels:
        raise AssertionValueError(f"is none of the labels.{suggest(expected, labels)}", "expected")
    return {"labels": labels, "expected": expected}


def _read_scale(written: Mapping[str, Any]) -> dict[str, Any]:
    low, high = written["scale"]
    if not low < high < low + MOST_SCALE_STEPS:
        message = f"goes from a lower to a higher number, at most {MOST_SCALE_STEPS} steps"
        raise AssertionValueError(message, "scale")
    if "expected" in written:
        raise AssertionValueError("belongs to 'labels'; 'scale' has 'min_score'", "expected")
    least = written.get("min_score")
    if least is None:
        raise AssertionValueError("'min_score' is required: the least mean that passes")
    if not low <= least <= high:
        raise AssertionValueError(f"is outside of the scale, {low} to {high}", "min_score")
    return {"scale": [low, high], "min_score": float(least)}


def _progress(consensus: Consensus, annotators: int) -> str:
    if consensus.tied:
        return f"{len(consensus.votes)} labels tie, one more decides"
    return f"{len(consensus.votes)} of {counted(annotators, 'label')}"


class HumanKeys(TypedDict, total=False):
    """The keys of `human`; `min_score` is on the scale, `required: true` means it has to pass."""

    question: Required[Text]
    labels: Annotated[list[Text], Field(min_length=2, max_length=36)]
    scale: Annotated[list[int], Field(min_length=2, max_length=2)]
    expected: Text
    min_score: float
    annotators: Annotated[Count, Field(le=1_000)]
    instructions: Text
    required: Annotated[bool | Share, Field(union_mode="left_to_right")]


class SuiteHumanKeys(HumanKeys, total=False):
    """The keys of `human` in suite files."""

    path: Text


def is_human(assertion: Assertion) -> bool:
    """Whether people make the check, also one at a path."""
    return "human" in (assertion.check, assertion.params.get("check"))


def is_awaiting(result: AssertionResult) -> bool:
    """Whether the result lacks labels."""
    return (
        result.outcome is Outcome.BLOCKED
        and result.details is not None
        and bool(result.details.get("missing"))
        and "annotation" in result.details
    )


def as_if_answered(result: AssertionResult) -> AssertionResult:
    """Return a result that lacks labels as people would pass it, any other one as it is."""
    if not is_awaiting(result):
        return result
    return result._replace(outcome=Outcome.PASSED, score=1.0)


def with_best_score(result: AssertionResult, score: float, outcome: Outcome) -> AssertionResult:
    """Return a result that lacks labels with what the item would come to with them."""
    if not is_awaiting(result):
        return result
    best: dict[str, Any] = {"score": score, "outcome": str(outcome)}
    return result._replace(details={**(result.details or {}), "if_passed": best})
