"""Checks on what was measured, and the check that stands for one that cannot be made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from evalcore.checks.base import (
    AssertionValueError,
    Check,
    Subject,
    aspect,
    by_aspects,
    passing_score,
)
from evalcore.checks.tools import calls_of
from evalcore.model.assertion import PASSED, Outcome, Verdict, blocked, broken, failed
from evalcore.model.scoring import is_below, reaches
from evalcore.shapes import OrAbsent, Share, Weight

NOT_MEASURED = "not measured"
_WORST = (Outcome.FAILED, Outcome.BLOCKED)


class _Maximum(Check):
    measure: ClassVar[str]
    unit: ClassVar[str] = " tokens"

    threshold: float

    def check(self, subject: Subject) -> Verdict:
        """Compare what was measured."""
        return _at_most(getattr(subject.metrics, self.measure), self.threshold, self.unit)


class Cost(_Maximum):
    """The cost in US dollars is at most `threshold`; blocked if it was not measured."""

    measure: ClassVar[str] = "cost_usd"
    unit: ClassVar[str] = " USD"


class Latency(_Maximum):
    """The latency in milliseconds is at most `threshold`; blocked if it was not measured."""

    measure: ClassVar[str] = "latency_ms"
    unit: ClassVar[str] = " ms"


class TotalTokens(_Maximum):
    """Input and output tokens together are at most `threshold`.

    If only one of them was measured, that one alone may already be too many; else blocked.
    """

    measure: ClassVar[str] = "total_tokens"

    def check(self, subject: Subject) -> Verdict:
        """Compare the sum."""
        metrics, verdict = subject.metrics, super().check(subject)
        incomplete = None in {metrics.input_tokens, metrics.output_tokens}
        if verdict.outcome is Outcome.PASSED and incomplete:
            missing = "input" if metrics.input_tokens is None else "output"
            return blocked(f"{NOT_MEASURED}: {missing} tokens")
        return verdict


class InputTokens(_Maximum):
    """The input tokens are at most `threshold`; blocked if they were not measured."""

    measure: ClassVar[str] = "input_tokens"


class OutputTokens(_Maximum):
    """The output tokens are at most `threshold`; blocked if they were not measured."""

    measure: ClassVar[str] = "output_tokens"


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


DEFAULT_TOLERANCE: Final = 0.2
MAXIMA: Final = {
    "max_tool_calls": "tool calls",
    "max_llm_calls": "model calls",
    "max_tokens": "tokens",
    "max_cost_usd": "USD",
    "max_duration_ms": "ms",
}
# Tools that only look, by what coding agents call them.
_LOOKING: Final = frozenset(
    {"read", "grep", "glob", "search", "list", "ls", "find", "view", "cat", "fetch", "get"}
)


class ExecutionMetrics(Check):
    """Each maximum that is set is kept; the score is the share of those that are.

    Blocked, with their names, if some of the measures were not taken.
    """

    max_tool_calls: Weight | None = None
    max_llm_calls: Weight | None = None
    max_tokens: Weight | None = None
    max_cost_usd: Weight | None = None
    max_duration_ms: Weight | None = None
    target_exploration_ratio: Share | None = None
    exploration_tolerance: Weight = DEFAULT_TOLERANCE
    threshold: Share | None = None

    def check(self, subject: Subject) -> Verdict:
        """Compare each measure."""
        measured = _measured(subject)
        names = [name for name in measured if getattr(self, name) is not None]
        missing = [name for name in names if measured[name] is None]
        if missing:
            return blocked(f"{NOT_MEASURED}: {', '.join(missing)}")
        aspects = [self._aspect(name, measured[name] or 0.0) for name in names]
        actual = ", ".join(
            f"{measured[name]:g} {MAXIMA.get(name, 'exploration')}" for name in names
        )
        return by_aspects(aspects, self.threshold, actual=actual)

    def _aspect(self, name: str, value: float) -> dict[str, Any]:
        bound: float = getattr(self, name)
        if name in MAXIMA:
            text = f"{value:g} {MAXIMA[name]}, at most {bound:g}"
            return aspect(text, not is_below(bound, value))
        tolerance = self.exploration_tolerance
        text = f"exploration {value:.2f}, expected {bound:g} ± {tolerance:g}"
        return aspect(text, reaches(tolerance, abs(value - bound)))

    @classmethod
    def read(cls, written: Mapping[str, Any], _reader: object) -> tuple[str, dict[str, Any]]:
        """Return the check that `execution-metrics` means."""
        names = cls.__annotations__.keys()
        fields = {key: value for key, value in written.items() if key in names}
        if not any(key.startswith(("max_", "target_")) for key in fields):
            raise AssertionValueError("checks nothing: give at least one maximum")
        return "execution-metrics", {**fields, "threshold": passing_score(written)}


def _measured(subject: Subject) -> dict[str, float | None]:
    details, metrics = subject.evidence.details, subject.metrics
    calls = calls_of(subject.evidence)
    models = details.get("calls")
    if models is None and "messages" in details:
        models = [message for message in details["messages"] if message.get("role") == "assistant"]
    looking = [call for call in calls or () if _looks(call.name)]
    complete = None not in {metrics.input_tokens, metrics.output_tokens}
    return {
        "max_tool_calls": None if calls is None else len(calls),
        "max_llm_calls": None if models is None else len(models),
        "max_tokens": metrics.total_tokens if complete else None,
        "max_cost_usd": metrics.cost_usd,
        "max_duration_ms": metrics.latency_ms,
        "target_exploration_ratio": len(looking) / len(calls) if calls else None,
    }


def _looks(name: str) -> bool:
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
    parts = words.replace("_", " ").replace("-", " ").split()
    return bool(parts) and (parts[0] in _LOOKING or "".join(parts) in _LOOKING)


class ScriptScore(Check):
    """The score of the statements reaches the case's threshold; the message holds the warnings."""

    def check(self, subject: Subject) -> Verdict:
        """Read the score from the evidence."""
        details = subject.evidence.details
        score = details.get("score")
        if not isinstance(score, int | float):
            return broken("the evidence has no score: it is not of a script suite")
        threshold = subject.case.threshold
        passed = reaches(score, 1.0 if threshold is None else threshold)
        message = "; ".join(details.get("warnings", ()))
        if passed and score == 1.0 and not message:
            return PASSED  # which many tests share
        return Verdict(Outcome.PASSED if passed else Outcome.FAILED, float(score), message)
