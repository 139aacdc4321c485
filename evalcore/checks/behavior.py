"""Checks on how an execution went: its errors, which nodes ran and how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.checks.subject import Subject
from evalcore.checks.wording import one_line, quote
from evalcore.model.assertion import Outcome, Verdict, blocked, failed
from evalcore.model.evidence import Evidence
from evalcore.model.evidence_path import error_texts

_NO_ERRORS = "no errors"
_NO_NODES = "it is not known which nodes ran: this answer came from no workflow"


def no_errors(params: Mapping[str, Any], subject: Subject) -> Verdict:  # noqa: ARG001 - a check's form
    """Check that no model call and no block ended in an error."""
    errors = error_texts(subject.evidence)
    if not errors:
        return Verdict(Outcome.PASSED, 1.0, actual=_NO_ERRORS, expected=_NO_ERRORS)
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    message = one_line(f"{errors[0]}{more}")
    return failed(message, actual=f"{len(errors)} errors", expected=_NO_ERRORS)


def node_executed(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that the node `node_id` ran."""
    counts = invocations(subject.evidence)
    if counts is None:
        return blocked(_NO_NODES)
    node = params["node_id"]
    expected = f"{node} runs"
    ran = ", ".join(name for name, count in counts.items() if count) or "none"
    if counts.get(node, 0):
        return Verdict(Outcome.PASSED, 1.0, actual=ran, expected=expected)
    return failed(f"{quote(node)} did not run; ran: {ran}", actual=ran, expected=expected)


def node_invocations(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that the node `node_id` ran at most `max` times; never counts as 0 times."""
    counts = invocations(subject.evidence)
    if counts is None:
        return blocked(_NO_NODES)
    node, most = params["node_id"], params["max"]
    count = counts.get(node, 0)
    expected = f"{node} ≤ {most}"
    if count <= most:
        return Verdict(Outcome.PASSED, 1.0, actual=str(count), expected=expected)
    message = f"{quote(node)} ran {count} times, at most {most} expected"
    return failed(message, actual=str(count), expected=expected)


def invocations(evidence: Evidence) -> Mapping[str, int] | None:
    """Return how often each node ran; None where nothing tells.

    Where only outputs are given (fixtures), each block that has one ran once.
    """
    counted = evidence.details.get("invocations")
    if isinstance(counted, Mapping):
        return counted
    return dict.fromkeys(evidence.outputs, 1) if evidence.outputs else None
