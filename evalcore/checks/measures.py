"""Checks on what was measured, and the check that stands for one that cannot be made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from evalcore.checks.base import AssertionValueError, Check
from evalcore.checks.scale import Scale
from evalcore.checks.subject import Subject
from evalcore.declared.types import OrAbsent, Weight
from evalcore.model.assertion import Outcome, Verdict, blocked, broken, failed
from evalcore.model.tolerance import is_below

NOT_MEASURED = "not measured"
_WORST = (Outcome.FAILED, Outcome.BLOCKED)


class _Maximum(Check):
    threshold: float


class Cost(_Maximum):
    """The cost in US dollars is at most `threshold`; blocked if it was not measured."""

    measure_scale: ClassVar[Scale] = Scale("the cost", "0 or more")

    def check(self, subject: Subject) -> Verdict:
        """Compare the cost."""
        return _at_most(subject.metrics.cost_usd, self.threshold, " USD")


class Latency(_Maximum):
    """The latency in milliseconds is at most `threshold`; blocked if it was not measured."""

    measure_scale: ClassVar[Scale] = Scale("the latency", "0 or more")

    def check(self, subject: Subject) -> Verdict:
        """Compare the latency."""
        return _at_most(subject.metrics.latency_ms, self.threshold, " ms")


class TotalTokens(_Maximum):
    """Input and output tokens together are at most `threshold`.

    If only one of them was measured, that one alone may already be too many; else blocked.
    """

    measure_scale: ClassVar[Scale] = Scale("the number of tokens", "0 or more")

    def check(self, subject: Subject) -> Verdict:
        """Compare the sum."""
        metrics = subject.metrics
        verdict = _at_most(metrics.total_tokens, self.threshold, " tokens")
        incomplete = None in {metrics.input_tokens, metrics.output_tokens}
        if verdict.outcome is Outcome.PASSED and incomplete:
            missing = "input" if metrics.input_tokens is None else "output"
            return blocked(f"{NOT_MEASURED}: {missing} tokens")
        return verdict


class InputTokens(_Maximum):
    """The input tokens are at most `threshold`; blocked if they were not measured."""

    measure_scale: ClassVar[Scale] = Scale("the number of tokens", "0 or more")

    def check(self, subject: Subject) -> Verdict:
        """Compare the input tokens."""
        return _at_most(subject.metrics.input_tokens, self.threshold, " tokens")


class OutputTokens(_Maximum):
    """The output tokens are at most `threshold`; blocked if they were not measured."""

    measure_scale: ClassVar[Scale] = Scale("the number of tokens", "0 or more")

    def check(self, subject: Subject) -> Verdict:
        """Compare the output tokens."""
        return _at_most(subject.metrics.output_tokens, self.threshold, " tokens")


class TokenMaxima(Check):
    """Tokens are at most `max_total`, `max_input` and `max_output`, those that are set.

    One that is too many fails; blocked if one of them was not measured and none is too many.
    """

    omitted: ClassVar[frozenset[str]] = frozenset({"max_input", "max_output"})

    max_total: OrAbsent[Weight] = None
    max_input: OrAbsent[Weight] = None
    max_output: OrAbsent[Weight] = None

    def check(self, subject: Subject) -> Verdict:
        """Compare each, the worst verdict counts."""
        maxima = (
            (TotalTokens, self.max_total),
            (InputTokens, self.max_input),
            (OutputTokens, self.max_output),
        )
        verdicts = [
            maximum.from_stored({"threshold": threshold}).check(subject)
            for maximum, threshold in maxima
            if threshold is not None
        ]
        for outcome in _WORST:
            for verdict in verdicts:
                if verdict.outcome is outcome:
                    return verdict
        actual = ", ".join(str(verdict.actual) for verdict in verdicts)
        return Verdict(Outcome.PASSED, 1.0, actual=actual)

    @classmethod
    def read(cls, written: Mapping[str, Any], _reader: object) -> tuple[str, dict[str, Any]]:
        """Return the check that `token-usage` means: of the sum alone, or of several maxima."""
        total = written.get("threshold", written.get("max_total"))
        maxima = {name: written[name] for name in ("max_input", "max_output") if name in written}
        if maxima:
            return "token-maxima", {"max_total": total, **maxima}
        if total is None:
            raise AssertionValueError("'threshold' is required: the most that is allowed")
        return "tokens", {"threshold": total}


class Unavailable(Check):
    """An assertion of a type that cannot be evaluated here is in error for `reason`."""

    reason: str

    def check(self, subject: Subject) -> Verdict:  # noqa: ARG002 - the signature of a check
        """Return the reason."""
        return broken(self.reason)


def _at_most(measured: float | None, threshold: float, unit: str) -> Verdict:
    if measured is None:
        return blocked(NOT_MEASURED)
    actual = f"{measured:.10g}{unit}"
    expected = f"≤ {threshold:.10g}{unit}"
    if not is_below(threshold, measured):
        return Verdict(Outcome.PASSED, 1.0, actual=actual, expected=expected)
    return failed(f"{actual}, expected {expected}", actual=actual, expected=expected)
