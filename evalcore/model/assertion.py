"""What is checked on the evidence, and what a check found.

These are tuples rather than dataclasses: a run of a million items makes ten million of them, and a
tuple is made in a third of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Outcome(StrEnum):
    """Outcome of an assertion. An item's outcome is one of the first three."""

    PASSED = "passed"
    FAILED = "failed"
    BLOCKED = "blocked"
    ERROR = "error"


class Assertion(NamedTuple):
    """A check on the evidence, as a loader chose it.

    `type` is the word of the suite's format; `check` names the row of `checks.registry` that
    evaluates it, and `params` (JSON values) hold everything that this check needs: value,
    threshold, trimming, the dialect of a regular expression. `block` says whose output is checked,
    None the primary output. `required` is the score below which the item fails for any total.
    """

    type: str
    check: str
    name: str
    params: Mapping[str, Any]
    block: str | None = None
    weight: float = 1.0
    required: float | None = None
    negate: bool = False
    transform: str | None = None
    metric: str | None = None


class Verdict(NamedTuple):
    """What a check found. `score` is in [0, 1]; blocked and error score 0.

    `actual` is what was looked at where that is not simply the output; `expected` is a text for
    people. Both may be None: the result then takes the output and the assertion's value. `details`
    (JSON values) are what a judge or a program said beside the score: `assertions`, `reasoning`,
    `prompt_sha256`, `token_usage`, …; `failed_required` in it names what was required and is not
    met, so the item fails for any score.
    `latency_ms` and `cost_usd` are what the check itself took. `measured` is false of a check that
    fails because there was nothing to check: `negate` makes no pass of it.
    """

    outcome: Outcome
    score: float
    message: str = ""
    actual: str | None = None
    expected: str | None = None
    details: Mapping[str, Any] | None = None
    latency_ms: float | None = None
    cost_usd: float | None = None
    measured: bool = True


class AssertionResult(NamedTuple):
    """An assertion together with its verdict: what a result row keeps."""

    name: str
    type: str
    block: str | None
    outcome: Outcome
    score: float
    weight: float
    required: float | None
    actual: str | None
    expected: str | None
    message: str
    latency_ms: float | None = None
    cost_usd: float | None = None
    details: Mapping[str, Any] | None = None

    @property
    def fails_item(self) -> bool:
        """Whether something required of it is not met."""
        return self.details is not None and bool(self.details.get("failed_required"))


PASSED = Verdict(Outcome.PASSED, 1.0)
FAILED = Verdict(Outcome.FAILED, 0.0)


def failed(message: str, *, actual: str | None = None, expected: str | None = None) -> Verdict:
    """Return the verdict of a check that does not hold."""
    return Verdict(Outcome.FAILED, 0.0, message, actual, expected)


def blocked(message: str) -> Verdict:
    """Return the verdict of a check that could not be evaluated for want of evidence."""
    return Verdict(Outcome.BLOCKED, 0.0, message)


def broken(message: str) -> Verdict:
    """Return the verdict of a check that is itself in error; it is never negated into a pass."""
    return Verdict(Outcome.ERROR, 0.0, message)
