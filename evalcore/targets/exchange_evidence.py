"""A provider's reply as evidence (docs/decisions/0015)."""

from __future__ import annotations

from typing import Any

from evalcore.model.evidence import Evidence
from evalcore.model.exchange import ProviderError, Reply, Request, call_notes


def evidence_of(reply: Reply, request: Request, output: str | None = None) -> Evidence:
    """Return the evidence of one call: its text (or `output`), its measures, its tool calls."""
    details: dict[str, Any] = {"calls": [call_of(reply, request)]}
    if reply.tool_calls:
        calls = [dict(call) for call in reply.tool_calls]
        message = {"role": "assistant", "content": reply.text, "tool_calls": calls}
        details["messages"] = [message]
    return Evidence(
        output=reply.text if output is None else output,
        metrics=reply.metrics,
        details=details,
    )


def call_of(reply: Reply, request: Request) -> dict[str, Any]:
    """Return a successful call as it stands in `details.calls`."""
    return {
        "provider": request.endpoint.provider,
        "model": reply.model or request.model,
        "block": None,
        "latency_ms": reply.latency_ms,
        "ttft_ms": reply.ttft_ms,
        "cost_usd": reply.cost_usd,
        "input_tokens": reply.usage.input_tokens,
        "output_tokens": reply.usage.output_tokens,
        **reply.metrics.token_parts,
        "attempts": reply.attempts,
        "recorded": reply.recorded,
        "error": None,
        **call_notes(request, reply),
    }


def failed_call_of(error: ProviderError, provider: str) -> dict[str, Any]:
    """Return a call that failed for good as it stands in `details.calls`."""
    return {
        "provider": provider,
        "model": None,
        "block": None,
        "latency_ms": None,
        "ttft_ms": None,
        "cost_usd": None,
        "input_tokens": None,
        "output_tokens": None,
        "attempts": error.attempts,
        "recorded": False,
        "error": error.message,
    }
