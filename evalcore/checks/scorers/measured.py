"""Scorers of what was measured: latency, cost, tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from evalcore.checks.scorers.score import Score, linear
from evalcore.checks.scorers.scorer import Scorer
from evalcore.declared.parameter_types import Amount
from evalcore.declared.parameters import Key
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case


@dataclass(frozen=True)
class MeasuredScorer(Scorer):
    """A scorer of an amount: 1 up to `ideal`, 0 from `max` on, a straight line between."""

    ideal: Amount = 0
    maximum: Annotated[Amount, Key("max")] = 1

    def __post_init__(self) -> None:
        if self.maximum <= self.ideal:
            raise ValueError("'max' has to be more than 'ideal'")

    def amount(self, evidence: Evidence) -> float | None:
        """Return the amount; None where it is not measured."""
        raise NotImplementedError

    def score(self, evidence: Evidence, case: Case) -> Score:  # noqa: ARG002 - a scorer's form
        """Return the place of the amount between the bounds."""
        amount = self.amount(evidence)
        if amount is None:
            return Score(self.label, None)
        return Score(self.label, linear(amount, self.ideal, self.maximum), amount)


@dataclass(frozen=True)
class LatencyScorer(MeasuredScorer):
    """The latency in milliseconds."""

    maximum: Annotated[Amount, Key("max")] = 30_000

    def amount(self, evidence: Evidence) -> float | None:
        """Return the latency."""
        return evidence.metrics.latency_ms


@dataclass(frozen=True)
class CostScorer(MeasuredScorer):
    """The cost in US dollars."""

    def amount(self, evidence: Evidence) -> float | None:
        """Return the cost."""
        return evidence.metrics.cost_usd


@dataclass(frozen=True)
class TokensScorer(MeasuredScorer):
    """Input tokens · `input_weight` + output tokens · `output_weight`."""

    maximum: Annotated[Amount, Key("max")] = 100_000
    input_weight: Amount = 1
    output_weight: Amount = 1

    def amount(self, evidence: Evidence) -> float | None:
        """Return the weighted sum; None if a count that has a weight is not measured."""
        metrics = evidence.metrics
        amount = 0.0
        for count, weight in (
            (metrics.input_tokens, self.input_weight),
            (metrics.output_tokens, self.output_weight),
        ):
            if not weight:
                continue
            if count is None:
                return None
            amount += count * weight
        return amount
