"""Scorers of what was measured: latency, cost, tokens."""

from __future__ import annotations

from evalcore.checks.scorers.score import Score, linear
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case, ScorerSpec


def latency(spec: ScorerSpec, evidence: Evidence, case: Case) -> Score:  # noqa: ARG001 - a scorer's form
    """Score the latency in milliseconds."""
    return _scored(spec, evidence.metrics.latency_ms)


def cost(spec: ScorerSpec, evidence: Evidence, case: Case) -> Score:  # noqa: ARG001 - a scorer's form
    """Score the cost in US dollars."""
    return _scored(spec, evidence.metrics.cost_usd)


def tokens(spec: ScorerSpec, evidence: Evidence, case: Case) -> Score:  # noqa: ARG001 - a scorer's form
    """Score input · input_weight + output · output_weight; unmeasured if one that counts is."""
    metrics, params = evidence.metrics, spec.params
    amount = 0.0
    for counted, weight in (
        (metrics.input_tokens, params["input_weight"]),
        (metrics.output_tokens, params["output_weight"]),
    ):
        if not weight:
            continue
        if counted is None:
            return _scored(spec, None)
        amount += counted * weight
    return _scored(spec, amount)


def _scored(spec: ScorerSpec, amount: float | None) -> Score:
    if amount is None:
        return Score(spec.name, None)
    return Score(spec.name, linear(amount, spec.params["ideal"], spec.params["max"]), amount)
