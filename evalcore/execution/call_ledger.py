"""The calls that one work item made, and what they come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import TYPE_CHECKING, Any, Final

from evalcore.model.evidence import TOKEN_PARTS, UNMEASURED, Evidence, Metrics, with_warnings
from evalcore.model.exchange import ProviderError, Reply, Request, call_notes
from evalcore.model.measures import COUNTS

if TYPE_CHECKING:
    from evalcore.recording.redaction import Redaction

# What the ledger alone knows of a call; a target that lists its own calls does not.
_TRACED: Final = (
    "finish_reason",
    "truncated",
    "unpriced",
    "began_ms",
    "recording",
    "retries",
    "request",
    "reply",
)


@dataclass(slots=True)
class OpenCall:
    """A call that has begun. `began_ms` is by the latencies of the calls before it.

    `recording` names its recording, if it has one; `retries` are the attempts that failed.
    """

    began_ms: float
    recording: str | None = None
    retries: list[dict[str, Any]] = field(default_factory=list)


class CallLedger:
    """Calls in the order in which they ended, as `details.calls` of the evidence has them.

    With `redaction` each call has its messages (`request`, `reply`), without secrets.
    """

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.redaction: Redaction | None = None
        self.notes: list[str] = []
        self._sent: list[Any] = []
        # Time as the calls' own latencies make it: a call begins when those before it have ended.
        self._ended_ms = 0.0

    def begin(self) -> OpenCall:
        """Return a call that starts now."""
        return OpenCall(self._ended_ms)

    def add_reply(self, call: OpenCall, request: Request, reply: Reply, error: str = "") -> None:
        """Note a call that was answered; `error` says why the answer could not be used."""
        self._ended_ms = max(self._ended_ms, call.began_ms + reply.latency_ms)
        self.notes += reply.notes
        entry = {
            "provider": request.endpoint.provider,
            "model": reply.model or request.model,
            "latency_ms": reply.latency_ms,
            "ttft_ms": reply.ttft_ms,
            "cost_usd": reply.cost_usd,
            **reply.usage.counts,
            "attempts": reply.attempts,
            "recorded": reply.recorded or None,
            "error": error or None,
            **call_notes(request, reply),
            **self._trace(call, request, reply),
        }
        self.calls.append({key: value for key, value in entry.items() if value is not None})

    def add_failure(self, call: OpenCall, request: Request, error: ProviderError) -> None:
        """Note a call that was given up."""
        self.calls.append(
            {
                "provider": request.endpoint.provider,
                "model": request.model,
                "attempts": error.attempts,
                "error": f"{error.kind}: {error.message}",
                **self._trace(call, request, None),
            }
        )

    def _trace(self, call: OpenCall, request: Request, reply: Reply | None) -> dict[str, Any]:
        """Return what is kept of a call beside its measures."""
        trace: dict[str, Any] = {}
        if call.recording is not None:
            trace["recording"] = call.recording
        if self.redaction is None:
            return trace
        redaction = self.redaction.knowing(request.endpoint)
        trace |= {"began_ms": call.began_ms, "request": self._request(request, redaction)}
        if call.retries:
            trace["retries"] = redaction.value(call.retries)
        if reply is not None:
            trace["reply"] = {
                "text": redaction.text(reply.text),
                "tool_calls": redaction.value(list(reply.tool_calls)),
                "finish_reason": reply.finish_reason,
            }
        return trace

    def _request(self, request: Request, redaction: Redaction) -> dict[str, Any]:
        """Return a request without secrets, and without the messages that the last call had.

        An agent sends its whole conversation with each call: the first `continues` messages are
        those of the call before.
        """
        from evalcore.recording.redaction import named_identity

        identity = redaction.identity(named_identity(request))
        messages, last = identity["messages"], self._sent
        shared = 0
        while shared < min(len(messages), len(last)) and messages[shared] == last[shared]:
            shared += 1
        self._sent = messages
        names = ("parameters", "tools", "response_schema")
        fields = {name: identity[name] for name in names if identity[name]}
        return {"continues": shared, "messages": messages[shared:], **fields}

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
            latency_ms=round(self._ended_ms, 1),
            ttft_ms=first[0] if first else None,
            cost_usd=fsum(costs) if len(costs) == len(answered) else None,
            **{name: count for name in COUNTS if (count := _total(answered, name)) is not None},
        )

    def completed(self, evidence: Evidence) -> Evidence:
        """Return evidence with what it does not say itself: measures, calls, notes of replies."""
        if not self.calls:
            return evidence
        evidence = with_warnings(evidence, self.notes)
        own, sums = evidence.metrics, self.metrics
        parts = TOKEN_PARTS if own.total_tokens is None else ()
        names = ("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens", *parts)
        metrics = replace(
            own, **{name: getattr(sums, name) for name in names if getattr(own, name) is None}
        )
        details = evidence.details
        if "calls" not in details:
            details = {**details, "calls": self.calls}
        elif any(name in call for call in self.calls for name in _TRACED):
            details = {**details, "calls": _traced(details["calls"], self.calls)}
        return evidence._replace(metrics=metrics, details=details)


def _traced(
    listed: Sequence[Mapping[str, Any]], noted: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the calls that a target lists, each with what the ledger noted of the same call.

    Both are in the order of the calls; the ledger may have more, those of a block's checks.
    """
    unused = list(noted)
    traced = []
    for entry in listed:
        same = next((call for call in unused if _is_same(entry, call)), None)
        if same is not None:
            unused.remove(same)
        trace = {name: same[name] for name in _TRACED if name in same} if same else {}
        traced.append({**entry, **trace})
    return traced


def _is_same(entry: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    names = ("provider", "latency_ms")
    return all(entry.get(name) == call.get(name) for name in names)


def _total(calls: list[dict[str, Any]], name: str) -> int | None:
    counts = [call[name] for call in calls if name in call]
    return sum(counts) if counts else None
