"""A work item that did not pass, as people are shown it."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.model.exchange import cut_of


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
    finish_reason: str | None = None


def cut_mark(finish_reason: str | None) -> str:
    """Return `, answer cut (length)` for an answer that was cut, "" for one that is whole."""
    return "" if cut_of(finish_reason) is None else f", answer cut ({finish_reason})"
