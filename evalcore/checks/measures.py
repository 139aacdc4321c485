"""Checks on what was measured, and the check that stands for one that cannot be made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.checks.subject import Subject
from evalcore.model.assertion import Outcome, Verdict, blocked, broken, failed
from evalcore.model.tolerance import is_below

NOT_MEASURED = "not measured"
_WORST = (Outcome.FAILED, Outcome.BLOCKED)


def cost(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that the cost in USD is at most `threshold`; blocked where none was measured."""
    return _at_most(subject.metrics.cost_usd, params["threshold"], " USD")


def latency(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that the latency in ms is at most `threshold`; blocked where none was measured."""
    return _at_most(subject.metrics.latency_ms, params["threshold"], " ms")


def tokens(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that input and output tokens together are at most `threshold`.

    Where only one of them was measured, that one alone may already be too many; else blocked.
    """
    metrics = subject.metrics
    verdict = _at_most(metrics.total_tokens, params["threshold"], " tokens")
    if verdict.outcome is Outcome.PASSED and None in {metrics.input_tokens, metrics.output_tokens}:
        missing = "input" if metrics.input_tokens is None else "output"
        return blocked(f"{NOT_MEASURED}: {missing} tokens")
    return verdict


def input_tokens(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that the input tokens are at most `threshold`; blocked where none were measured."""
    return _at_most(subject.metrics.input_tokens, params["threshold"], " tokens")


def output_tokens(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that the output tokens are at most `threshold`; blocked where none were measured."""
    return _at_most(subject.metrics.output_tokens, params["threshold"], " tokens")


def token_maxima(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check that tokens are at most `max_total`, `max_input` and `max_output`, as far as given.

    One that is too many fails; blocked where one of them was not measured and none is too many.
    """
    verdicts = [
        check({"threshold": params[name]}, subject)
        for name, check in (
            ("max_total", tokens),
            ("max_input", input_tokens),
            ("max_output", output_tokens),
        )
        if params.get(name) is not None
    ]
    worst = next((one for outcome in _WORST for one in verdicts if one.outcome is outcome), None)
    if worst is not None:
        return worst
    return Verdict(Outcome.PASSED, 1.0, actual=", ".join(str(one.actual) for one in verdicts))


def unavailable(params: Mapping[str, Any], subject: Subject) -> Verdict:  # noqa: ARG001 - a check's form
    """Be in error for `reason`: the assertion's `type` cannot be evaluated here."""
    return broken(params["reason"])


def _at_most(measured: float | None, threshold: float, unit: str) -> Verdict:
    if measured is None:
        return blocked(NOT_MEASURED)
    actual = f"{measured:.10g}{unit}"
    expected = f"≤ {threshold:.10g}{unit}"
    if not is_below(threshold, measured):
        return Verdict(Outcome.PASSED, 1.0, actual=actual, expected=expected)
    return failed(f"{actual}, expected {expected}", actual=actual, expected=expected)
