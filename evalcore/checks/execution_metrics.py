"""The check on several measures at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from evalcore.checks.base import AssertionValueError, Check
from evalcore.checks.graded import aspect, by_aspects
from evalcore.checks.judge import passing_score
from evalcore.checks.measures import NOT_MEASURED
from evalcore.checks.scale import Scale, share
from evalcore.checks.subject import Subject
from evalcore.checks.trajectory import calls_of
from evalcore.declared.types import Share, Weight
from evalcore.model.assertion import Verdict, blocked
from evalcore.model.tolerance import is_below, reaches

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

    measure_scale: ClassVar[Scale] = share("the score")

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
