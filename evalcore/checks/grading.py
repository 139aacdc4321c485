"""The assertions of one item on its evidence: one result each, in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from evalcore.checks.base import CheckContext, Subject, apply_negation
from evalcore.checks.json import TransformError, apply_transform
from evalcore.checks.registry import AWAITED, find_check
from evalcore.model.assertion import (
    PASSED,
    Assertion,
    AssertionResult,
    Outcome,
    Verdict,
    broken,
)
from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.exchange import (
    SkippedError,
    Turns,
    asked_until,
    turn_block,
    turn_number,
    windowed,
)
from evalcore.model.suite import Case
from evalcore.wording import describe_error, shorten

if TYPE_CHECKING:
    from evalcore.checks.base import Check

# So many assertions that passed are kept: what many cases share is graded again and again.
_MOST_PASSED: Final = 1_000


def of_turn(case: Case, turns: Turns, evidence: Evidence, number: int) -> tuple[Case, Evidence]:
    """Return the case with the conversation up to a turn and what is expected there.

    The evidence has the messages of that turn alone.
    """
    outputs = evidence.outputs
    answers = [outputs.get(turn_block(n), "") for n in range(1, number)]
    expected = turns.expected[number - 1] if number <= len(turns.expected) else None
    messages_until = windowed(asked_until(case.input, answers, turns, number), turns.window)
    spans = evidence.details.get("turns") or ()
    if number <= len(spans):
        start, stop = spans[number - 1]
        messages = evidence.details.get("messages", ())[start:stop]
        evidence = evidence._replace(details={**evidence.details, "messages": messages})
    return case._replace(input=messages_until, expected_output=expected), evidence


def waits(assertions: Sequence[Assertion]) -> bool:
    """Whether `grade` may suspend: a check asks a model, a program or foreign Python."""
    for assertion in assertions:  # noqa: SIM110 - twice as quick as `any` with a generator
        if assertion.check in AWAITED:
            return True
    return False


async def grade(
    assertions: Sequence[Assertion], evidence: Evidence, case: Case, context: CheckContext
) -> tuple[AssertionResult, ...]:
    """Return the results; one check after the other, so an item never does two things at once.

    Without checks that have to be awaited (`waits`) and without the context's `thread` it never
    suspends. Raises `SkippedError` where a limit kept a check from asking.
    """
    subjects = _Subjects(evidence, case, context)
    thread, passed, results = context.thread, context.passed, []
    for assertion in assertions:
        # An entry keeps its assertion alive, so that its id is not another's.
        known = passed.get(id(assertion))
        check = None
        try:
            if known is None:
                check = find_check(assertion.check).from_stored(assertion.params)
            else:
                check = known[1]
            verdict = (
                subjects.verdict(assertion, check)
                if thread is None
                else await thread.result(
                    assertion.check, partial(subjects.verdict, assertion, check)
                )
            )
            if not isinstance(verdict, Verdict):
                verdict = await _awaited(assertion, verdict)
        except SkippedError:
            raise
        except Exception as error:  # noqa: BLE001 - outputs and checks are foreign
            verdict = broken(describe_error(error))
        if verdict is not PASSED or check is None:
            results.append(_result(assertion, check, verdict, subjects))
            continue
        if known is None:
            result = _result(assertion, check, verdict, subjects)
            if not assertion.negate and assertion.transform is None:
                if len(passed) == _MOST_PASSED:
                    passed.clear()
                passed[id(assertion)] = assertion, check, result
        else:
            result = known[2]
        results.append(result)
    return tuple(results)


async def _awaited(assertion: Assertion, verdict: object) -> Verdict:
    if not isinstance(verdict, Awaitable):
        return broken(f"check {assertion.check!r} gave no verdict")
    ended: Verdict = await verdict
    return ended


class _Subjects:
    """What the checks of one item look at, made once for each block."""

    __slots__ = ("_by_text", "_output", "case", "context", "evidence")

    def __init__(self, evidence: Evidence, case: Case, context: CheckContext) -> None:
        self.evidence = evidence
        self.case = case
        self.context = context
        self._by_text: dict[tuple[str | None, str | None], Subject] = {}
        # What most checks look at: the primary output as it is.
        self._output: Subject | None = None

    def verdict(self, assertion: Assertion, check: Check) -> Verdict | Awaitable[Verdict]:
        """Return the verdict of a check, or what it is awaited from."""
        subject = self._output
        if subject is not None and assertion.block is None and assertion.transform is None:
            return check.check(subject)
        text = self._find(assertion.block, assertion.transform)
        return text if isinstance(text, Verdict) else check.check(text)

    def _find(self, block: str | None, transform: str | None) -> Subject | Verdict:
        """Return what is checked, or the verdict on the want of it."""
        subject = self._by_text.get((block, transform))
        if subject is not None:
            return subject
        text = self._text(block)
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
        case = self.case
        if case.turns is not None and (number := turn_number(block)) is not None:
            case, evidence = of_turn(case, case.turns, evidence, number)
        subject = Subject(text, metrics, evidence, case, self.context)
        self._by_text[block, transform] = subject
        if block is None and transform is None:
            self._output = subject
        return subject

    def checked_text(self, block: str | None, transform: str | None) -> str | None:
        """Return the text that a check looked at; where it got none, the output as it was."""
        subject = self._by_text.get((block, transform))
        return self._text(block) if subject is None else subject.output

    def _text(self, block: str | None) -> str | None:
        return self.evidence.output if block is None else self.evidence.outputs.get(block)


def _result(
    assertion: Assertion, check: Check | None, verdict: Verdict, subjects: _Subjects
) -> AssertionResult:
    """Return the result. Rows do not repeat the text of the output: reports take it from there."""
    type_, _, name, _, block, weight, required, negate, transform, _ = assertion
    if verdict is PASSED and check is not None and not negate and transform is None:
        passed, expected = Outcome.PASSED, check.expected_text()
        return AssertionResult(
            name, type_, block, passed, 1.0, weight, required, None, expected, ""
        )
    if negate:
        verdict = apply_negation(assertion, verdict)
    outcome, score, message, actual, expected, details, latency_ms, cost_usd, _ = verdict
    if actual is None and (outcome is not Outcome.PASSED or transform is not None):
        actual = subjects.checked_text(block, transform)
    if actual is not None:
        actual = shorten(actual)
    if expected is not None:
        expected = shorten(expected)
    elif check is not None:
        expected = check.expected_text()
    return AssertionResult(
        name,
        type_,
        block,
        outcome,
        score,
        weight,
        required,
        actual,
        expected,
        message,
        latency_ms,
        cost_usd,
        details,
    )
