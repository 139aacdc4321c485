"""Checks on how an execution went: its errors, which nodes ran and how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from evalcore.checks.base import Check
from evalcore.checks.subject import Subject
from evalcore.declared.types import Text
from evalcore.mistakes.foreign_text import one_line, quote
from evalcore.mistakes.wording import counted
from evalcore.model.assertion import Outcome, Verdict, blocked, failed
from evalcore.model.evidence import Evidence
from evalcore.model.evidence_path import error_texts

_NO_ERRORS = "no errors"
_NO_NODES = "it is not known which nodes ran: this answer came from no workflow"


class NoErrors(Check):
    """No model call and no block ended in an error."""

    def check(self, subject: Subject) -> Verdict:
        """Look for errors in the evidence."""
        errors = error_texts(subject.evidence)
        if not errors:
            return Verdict(Outcome.PASSED, 1.0, actual=_NO_ERRORS, expected=_NO_ERRORS)
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        message = one_line(f"{errors[0]}{more}")
        return failed(message, actual=counted(len(errors), "error"), expected=_NO_ERRORS)


class NodeExecuted(Check):
    """The node `node_id` ran."""

    node_id: Text

    def check(self, subject: Subject) -> Verdict:
        """Look for the node in the evidence."""
        counts = invocations(subject.evidence)
        if counts is None:
            return blocked(_NO_NODES)
        expected = f"{self.node_id} runs"
        ran = ", ".join(name for name, count in counts.items() if count) or "none"
        if counts.get(self.node_id, 0):
            return Verdict(Outcome.PASSED, 1.0, actual=ran, expected=expected)
        message = f"{quote(self.node_id)} did not run; ran: {ran}"
        return failed(message, actual=ran, expected=expected)


class NodeInvocations(Check):
    """The node `node_id` ran at most `max` times; never counts as 0 times."""

    node_id: Text
    max: Annotated[int, Field(ge=0)]

    def check(self, subject: Subject) -> Verdict:
        """Count the node's invocations."""
        counts = invocations(subject.evidence)
        if counts is None:
            return blocked(_NO_NODES)
        count = counts.get(self.node_id, 0)
        expected = f"{self.node_id} ≤ {self.max}"
        if count <= self.max:
            return Verdict(Outcome.PASSED, 1.0, actual=str(count), expected=expected)
        message = f"{quote(self.node_id)} ran {counted(count, 'time')}, at most {self.max} expected"
        return failed(message, actual=str(count), expected=expected)

    def expected_text(self) -> str:
        """Return the bound."""
        return f"max {self.max}"


def invocations(evidence: Evidence) -> Mapping[str, int] | None:
    """Return how often each node ran; None if the evidence does not say.

    Of evidence that has outputs alone (fixtures), each block with an output ran once.
    """
    counted = evidence.details.get("invocations")
    if isinstance(counted, Mapping):
        return counted
    return dict.fromkeys(evidence.outputs, 1) if evidence.outputs else None
