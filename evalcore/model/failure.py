"""A work item that did not pass, as people are shown it."""

from __future__ import annotations

from typing import NamedTuple


class FailedAssertion(NamedTuple):
    """An assertion that did not pass."""

    name: str
    type: str
    block: str | None
    outcome: str
    expected: str | None
    actual: str | None
    message: str


class Failure(NamedTuple):
    """A work item that did not pass. `output` is cut to 500 characters."""

    case: str
    variant: str
    iteration: int
    status: str
    outcome: str | None
    score: float | None
    error_kind: str | None
    error_message: str | None
    reason: str | None
    output: str | None
    assertions: tuple[FailedAssertion, ...]
