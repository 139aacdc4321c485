"""The assertions of one item on its evidence: one result each, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from evalcore.assertions.negation import apply_negation
from evalcore.assertions.registry import CHECKS, AsyncRow, find_check
from evalcore.assertions.subject import CheckContext, Subject
from evalcore.assertions.transform import TransformError, apply_transform
from evalcore.assertions.wording import describe_error, expected_text, shorten
from evalcore.errors import UsageError
from evalcore.model.assertion import Assertion, AssertionResult, Outcome, Verdict, broken
from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.suite import Case


def grade_now(
    assertions: Sequence[Assertion], evidence: Evidence, case: Case, context: CheckContext
) -> tuple[AssertionResult, ...] | None:
    """Return the results, or None, nothing evaluated, if a check has to be awaited (`grade`)."""
    for assertion in assertions:
        row = CHECKS.get(assertion.check)
        if row is not None and row.is_async:
            return None
    subjects = _Subjects(evidence, case, context)
    return tuple([_result(one, _check_now(one, subjects), subjects) for one in assertions])


async def grade(
    assertions: Sequence[Assertion], evidence: Evidence, case: Case, context: CheckContext
) -> tuple[AssertionResult, ...]:
    """Return the results; one check after the other, so an item never does two things at once."""
    subjects = _Subjects(evidence, case, context)
    results = []
    for assertion in assertions:
        row = CHECKS.get(assertion.check)
        if row is not None and row.is_async:
            verdict = await _check_later(assertion, subjects)
        else:
            verdict = _check_now(assertion, subjects)
        results.append(_result(assertion, verdict, subjects))
    return tuple(results)


class _Subjects:
    """What the checks of one item look at, made once for each block."""

    __slots__ = ("_by_block", "case", "context", "evidence")

    def __init__(self, evidence: Evidence, case: Case, context: CheckContext) -> None:
        self.evidence = evidence
        self.case = case
        self.context = context
        self._by_block: dict[tuple[str | None, str | None], Subject] = {}

    def text(self, block: str | None) -> str | None:
        """Return the output of the block, or the primary one; None if there is none."""
        return self.evidence.output if block is None else self.evidence.outputs.get(block)

    def find(self, block: str | None, transform: str | None) -> Subject | Verdict:
        """Return what is checked, or the verdict on the want of it."""
        subject = self._by_block.get((block, transform))
        if subject is not None:
            return subject
        text = self.text(block)
        if text is None:
            return broken(
                "there is no output" if block is None else f"block {block!r} was never reached"
            )
        if transform is not None:
            try:
                text = apply_transform(transform, text)
            except TransformError as error:
                return broken(str(error))
        evidence = self.evidence
        metrics = (
            evidence.metrics if block is None else evidence.block_metrics.get(block, UNMEASURED)
        )
        subject = Subject(text, metrics, evidence, self.case, self.context)
        self._by_block[block, transform] = subject
        return subject


def _check_now(assertion: Assertion, subjects: _Subjects) -> Verdict:
    try:
        subject = subjects.find(assertion.block, assertion.transform)
        if isinstance(subject, Verdict):
            return subject
        row = find_check(assertion.check)
        if isinstance(row, AsyncRow):
            return broken(f"check {assertion.check!r} has to be awaited")
        return row.function(assertion.params, subject)
    except UsageError as error:
        return broken(str(error))
    except Exception as error:  # noqa: BLE001 - an output is anybody's, and so may a check be
        return broken(describe_error(error))


async def _check_later(assertion: Assertion, subjects: _Subjects) -> Verdict:
    try:
        subject = subjects.find(assertion.block, assertion.transform)
        if isinstance(subject, Verdict):
            return subject
        row = find_check(assertion.check)
        if isinstance(row, AsyncRow):
            return await row.function(assertion.params, subject)
        return row.function(assertion.params, subject)
    except Exception as error:  # noqa: BLE001 - an output is anybody's, and so may a check be
        return broken(describe_error(error))


def _result(assertion: Assertion, verdict: Verdict, subjects: _Subjects) -> AssertionResult:
    if assertion.negate:
        verdict = apply_negation(assertion, verdict)
    outcome, score, message, actual, expected = verdict
    if outcome is Outcome.PASSED:
        actual = None
    else:
        actual = _actual(assertion, verdict, subjects)
    if expected is None:
        expected = expected_text(assertion.params)
    else:
        expected = shorten(expected)
    return AssertionResult(
        assertion.name,
        assertion.type,
        assertion.block,
        outcome,
        score,
        assertion.weight,
        assertion.required,
        actual,
        expected,
        message,
    )
