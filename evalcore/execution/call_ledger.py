"""The calls that one work item made, and what they come to."""

from __future__ import annotations

from math import fsum
from typing import Any

from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import ProviderError, Reply, Request


class CallLedger:
    """Calls in the order in which they ended, as `details.calls` of the evidence has them."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        # Time as the calls' own latencies make it: a call begins when those before it have ended.
        self._ended_ms = 0.0

    def begin(self) -> float:
        """Return when a call that starts now begins (milliseconds)."""
        return self._ended_ms

    def add_reply(self, began_ms: float, request: Request, reply: Reply, error: str = "") -> None:
        """Note a call that was answered; `error` says why the answer could not be used."""
        self._ended_ms = max(self._ended_ms, began_ms + reply.latency_ms)
        entry = {
            "provider": request.endpoint.provider,
            "model": reply.model or request.model,
            "latency_ms": reply.latency_ms,
            "ttft_ms": reply.ttft_ms,
            "cost_usd": reply.cost_usd,
            "input_tokens": reply.usage.input_tokens,
            "output_tokens": reply.usage.output_tokens,
            "attempts": reply.attempts,
            "recorded": reply.recorded or None,
            "error": error or None,
        }
        self.calls.append({key: value for key, value in entry.items() if value is not None})

    def add_failure(self, request: Request, error: ProviderError) -> None:
        """Note a call that was entry up."""
        self.calls.append(
            {
                "provider": request.endpoint.provider,
                "model": request.model,
                "attempts": error.attempts,
                "error": f"{error.kind}: {error.message}",
            }
        )

    @property
    def attempts(self) -> int:
        """How many calls were made, each attempt counted."""
        return sum(call["attempts"] for call in self.calls)

    @property
    def metrics(self) -> Metrics:
        """Sums over the calls that were answered; of calls side by side the longest counts.

        The time to the first token is the first call's. The cost is None if one call's is unknown.
        """
        answered = [call for call in self.calls if "latency_ms" in call]
        if not answered:
            return UNMEASURED
        costs = [call["cost_usd"] for call in answered if "cost_usd" in call]
        first = [call["ttft_ms"] for call in answered if "ttft_ms" in call]
        return Metrics(
            latency_ms=self._ended_ms,
            ttft_ms=first[0] if first else None,
            cost_usd=fsum(costs) if len(costs) == len(answered) else None,
            input_tokens=_total(answered, "input_tokens"),
            output_tokens=_total(answered, "output_tokens"),
        )

    def completed(self, evidence: Evidence) -> Evidence:
        """Return evidence with what it does not say itself: its measures, and its calls."""
        if not self.calls:
            return evidence
        own, sums = evidence.metrics, self.metrics
        metrics = Metrics(
            sums.latency_ms if own.latency_ms is None else own.latency_ms,
            sums.ttft_ms if own.ttft_ms is None else own.ttft_ms,
            sums.cost_usd if own.cost_usd is None else own.cost_usd,
            sums.input_tokens if own.input_tokens is None else own.input_tokens,
            sums.output_tokens if own.output_tokens is None else own.output_tokens,
        )
        details = evidence.details
        if "calls" not in details:
            details = {**details, "calls": self.calls}
        return evidence._replace(metrics=metrics, details=details)


def _total(calls: list[dict[str, Any]], name: str) -> int | None:
    counts = [call[name] for call in calls if name in call]
    return sum(counts) if counts else None
