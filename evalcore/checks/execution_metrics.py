"""The check on several measures at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from evalcore.checks.graded import aspect, by_aspects
from evalcore.checks.measures import NOT_MEASURED
from evalcore.checks.subject import Subject
from evalcore.checks.trajectory import calls_of
from evalcore.model.assertion import Verdict, blocked
from evalcore.model.tolerance import reaches

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


def execution_metrics(params: Mapping[str, Any], subject: Subject) -> Verdict:
    """Check each maximum that is given; the score is the share of those that are kept.

    Blocked, with their names, where some of the measures were not taken.
    """
    measured = _measured(subject)
    wanted = [name for name in (*MAXIMA, "target_exploration_ratio") if name in params]
    missing = [name for name in wanted if measured[name] is None]
    if missing:
        return blocked(f"{NOT_MEASURED}: {', '.join(missing)}")
    aspects = list(_aspects(params, wanted, measured))
    shown = ", ".join(f"{measured[name]:g} {MAXIMA.get(name, 'exploration')}" for name in wanted)
    return by_aspects(aspects, params.get("threshold"), actual=shown)


def _aspects(
    params: Mapping[str, Any], wanted: list[str], measured: Mapping[str, float | None]
) -> Iterator[dict[str, Any]]:
    for name in wanted:
        value, bound = measured[name] or 0.0, params[name]
        if name in MAXIMA:
            yield aspect(f"{value:g} {MAXIMA[name]}, at most {bound:g}", reaches(bound, value))
            continue
        tolerance = params.get("exploration_tolerance", DEFAULT_TOLERANCE)
        text = f"exploration {value:.2f}, expected {bound:g} ± {tolerance:g}"
        yield aspect(text, reaches(tolerance, abs(value - bound)))


def _measured(subject: Subject) -> dict[str, float | None]:
    details, metrics = subject.evidence.details, subject.metrics
    calls = calls_of(subject.evidence)
    models = details.get("calls")
    if models is None and "messages" in details:
        models = [one for one in details["messages"] if one.get("role") == "assistant"]
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
