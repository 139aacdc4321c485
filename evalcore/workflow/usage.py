"""What the model calls of an execution took: the list of calls, their sums, and caps on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Any, NamedTuple

from evalcore.model.evidence import UNMEASURED, Metrics, sum_tokens
from evalcore.workflow.bounds import Caps


class ProviderCall(NamedTuple):
    """One exchange with a provider. Calls of the same `group` ran at the same time.

    `part` is the exit of a dispatch that made it; `is_model` is False for a plain HTTP request.
    """

    provider: str
    model: str
    block: str
    metrics: Metrics
    attempts: int = 1
    recorded: bool = False
    error: str | None = None
    group: int = 0
    part: str | None = None
    is_model: bool = True

    @property
    def output_id(self) -> str:
        """Return the id of the output that the call made: `block` or `block.exit`."""
        return self.block if self.part is None else f"{self.block}.{self.part}"

    def as_json(self) -> dict[str, Any]:
        """Return the call as evidence holds it (docs/decisions/0015)."""
        measured = self.metrics
        return {
            "provider": self.provider,
            "model": self.model,
            "block": self.output_id,
            "latency_ms": measured.latency_ms,
            "ttft_ms": measured.ttft_ms,
            "cost_usd": measured.cost_usd,
            "input_tokens": measured.input_tokens,
            "output_tokens": measured.output_tokens,
            **measured.token_parts,
            "attempts": self.attempts,
            "recorded": self.recorded,
            "error": self.error,
        }


def sum_calls(calls: Sequence[ProviderCall]) -> Metrics:
    """Return the sums over the calls; of those that ran at the same time, the longest latency."""
    answered = [call for call in calls if call.error is None]
    if not answered:
        return UNMEASURED
    longest: dict[int, float] = {}
    for call in answered:
        if call.metrics.latency_ms is not None:
            before = longest.get(call.group, 0.0)
            longest[call.group] = max(before, call.metrics.latency_ms)
    first = answered[0].metrics.ttft_ms if len(answered) == 1 else None
    measured = [call.metrics for call in answered]
    return Metrics(
        latency_ms=round(sum(longest.values()), 1) if longest else None,
        ttft_ms=first,
        cost_usd=_sum(m.cost_usd for m in measured),
        **sum_tokens(measured),
    )


def by_block(calls: Iterable[ProviderCall]) -> dict[str, Metrics]:
    """Return the sums of each block (and exit) that called a provider."""
    calls_by_block: dict[str, list[ProviderCall]] = {}
    for call in calls:
        for block in {call.block, call.output_id}:
            calls_by_block.setdefault(block, []).append(call)
    summed = {block: sum_calls(members) for block, members in calls_by_block.items()}
    return {block: metrics for block, metrics in summed.items() if metrics != UNMEASURED}


def _sum(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return fsum(measured) if measured else None


@dataclass(slots=True)
class Meter:
    """What was spent under one `limits`: a block's or a workflow's. `warned` names what passed."""

    caps: Caps
    cost_usd: float = 0.0
    tokens: int = 0
    warned: set[str] = field(default_factory=set)

    def add(self, metrics: Metrics) -> None:
        """Count a call."""
        self.cost_usd += metrics.cost_usd or 0.0
        self.tokens += metrics.total_tokens or 0

    def exceeded(self) -> Mapping[str, str]:
        """Return which caps are passed, each with a sentence about it."""
        passed = {}
        caps = self.caps
        cost_usd, tokens = caps.cost_cap_usd, caps.token_cap
        if cost_usd is not None and self.cost_usd > cost_usd:
            passed["cost_cap_usd"] = f"cost {self.cost_usd:g} USD, the limit is {cost_usd:g}"
        if tokens is not None and self.tokens > tokens:
            passed["token_cap"] = f"used {self.tokens} tokens, the limit is {tokens}"
        return passed
