"""DECIDE: gates over aggregates; pure, no I/O.

The package itself is what `from evalcore import gates` gives: `gates.pass_rate(0.9)` and the other
constructors of `gates.choices`, loaded when one is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalcore.gates.choices import (
        Gate,
        cost_under,
        custom,
        error_rate_under,
        errors,
        latency_under,
        no_regressions,
        no_significant_regression,
        p95_latency_under,
        pass_rate,
        required_assertions,
        required_cases,
        score_at_least,
        tokens_under,
    )

__all__ = [
    "Gate",
    "cost_under",
    "custom",
    "error_rate_under",
    "errors",
    "latency_under",
    "no_regressions",
    "no_significant_regression",
    "p95_latency_under",
    "pass_rate",
    "required_assertions",
    "required_cases",
    "score_at_least",
    "tokens_under",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'evalcore.gates' has no attribute {name!r}")
    from evalcore.gates import choices

    return getattr(choices, name)
