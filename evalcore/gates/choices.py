"""Gates in Python: `gates.no_regressions()`, `gates.pass_rate(0.9)`, …

They are checked together with the rest of the suite, by `define_suite`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FirstRun = Literal["inconclusive", "pass"]


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate by its name with its parameters; `function` is a custom gate's own."""

    gate: str
    params: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None


def no_regressions(
    allow_metric_regressions: bool = False, first_run: FirstRun = "inconclusive"
) -> Gate:
    """Nothing is worse than the baseline's; without a baseline inconclusive, or `first_run`."""
    params = {"allow_metric_regressions": allow_metric_regressions, "first_run": first_run}
    return Gate("no_regressions", params)


def no_significant_regression(margin: float = 0.02, alpha: float = 0.05) -> Gate:
    """The scores are surely not worse than the baseline's by more than `margin`."""
    return Gate("no_significant_regression", {"margin": margin, "alpha": alpha})


def pass_rate(threshold: float, per_variant: bool = False) -> Gate:
    """The share of cases that passed is at least `threshold`, over all variants or in each."""
    return Gate("pass_rate", {"threshold": threshold, "per_variant": per_variant})


def score_at_least(threshold: float) -> Gate:
    """The run's score is at least `threshold`."""
    return Gate("score_at_least", {"threshold": threshold})


def error_rate_under(threshold: float) -> Gate:
    """The share of work items in error is below `threshold`."""
    return Gate("error_rate_under", {"threshold": threshold})


def errors() -> Gate:
    """No work item and no assertion is in error; every suite has this gate unless told not to."""
    return Gate("errors")


def required_assertions() -> Gate:
    """Every required assertion reaches its own threshold."""
    return Gate("required_assertions")


def required_cases(case_ids: Iterable[str]) -> Gate:
    """Each of these cases passes in every variant."""
    listed = [case_ids] if isinstance(case_ids, str) else list(case_ids)
    return Gate("required_cases", {"case_ids": listed})


def latency_under(max_ms: float) -> Gate:
    """The slowest work item takes less than this; one that was not measured fails the gate."""
    return Gate("latency_under", {"max": max_ms})


def p95_latency_under(max_ms: float) -> Gate:
    """The 95th percentile of the latencies is less than this."""
    return Gate("p95_latency_under", {"max": max_ms})


def cost_under(max_usd: float, per_case: bool = False, include_judges: bool = False) -> Gate:
    """The run costs less than this, or with `per_case` its costliest case does.

    The costs of judges count with `include_judges`.
    """
    params = {"max": max_usd, "per_case": per_case, "include_judges": include_judges}
    return Gate("cost_under", params)


def tokens_under(max_tokens: int) -> Gate:
    """The run needs fewer tokens than this."""
    return Gate("tokens_under", {"max": max_tokens})


def custom(name: str, description: str, fn: Callable[..., Any] | str) -> Gate:
    """Your function decides: `fn(report)` returns a bool, `(passed, message)` or a mapping.

    `report` is the report's JSON values without its gates. `fn` may be `module:function`.
    """
    params: dict[str, Any] = {"name": name}
    if description:
        params["description"] = description
    if isinstance(fn, str):
        return Gate("custom", {**params, "callable": fn})
    return Gate("custom", params, fn)
