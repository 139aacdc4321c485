"""The calls of a work item: what was sent and received, from its evidence or from recordings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from evalcore.model.exchange import ProviderError
from evalcore.recording.content import Recording, RecordingError
from evalcore.recording.library import Library
from evalcore.viewer.views.texts import (
    MessageList,
    PageMessage,
    PageText,
    TextBudget,
    conversation_of,
    tool_calls_of,
)

_MOST_CALLS: Final = 50
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_MEASURES: Final = (
    *("latency_ms", "ttft_ms", "cost_usd", "input_tokens", "output_tokens"),
    *("cached_tokens", "cache_write_tokens", "reasoning_tokens", "attempts"),
)
_REPLY_CHARACTERS: Final = 16_000
_PARAMETERS_CHARACTERS: Final = 4_000


class Exchange(NamedTuple):
    """A call with its messages. `unavailable` says why there are none, and how to keep them."""

    facts: Mapping[str, Any]
    sent: MessageList | None = None
    parameters: PageText | None = None
    tools: PageText | None = None
    received: PageMessage | None = None
    finish_reason: str | None = None
    unavailable: str | None = None


class Exchanges(NamedTuple):
    """The calls in the order in which they ended; `omitted` counts those left out at the end."""

    calls: tuple[Exchange, ...]
    omitted: int = 0


def read_exchanges(details: Mapping[str, Any], library: Library, budget: TextBudget) -> Exchanges:
    """Return the calls of `Evidence.details` with what was sent and received.

    A target in Python may list calls of any shape: what is no measure or text is left out.
    """
    entries = _mappings(details.get("calls"))
    sent: list[Any] = []
    exchanges = []
    for entry in entries[:_MOST_CALLS]:
        facts = _facts(entry)
        if isinstance(entry.get("request"), Mapping):
            request = dict(entry["request"])
            shared = request.pop("continues", 0)
            begin = sent[:shared] if isinstance(shared, int) else []
            sent = [*begin, *_mappings(request.get("messages"))]
            request["messages"] = sent
            exchanges.append(_exchange(facts, request, entry.get("reply"), budget))
        elif facts["recording"] is not None:
            exchanges.append(_recorded(facts, library, budget))
        else:
            exchanges.append(Exchange(facts, unavailable=_why_unavailable(entry)))
    return Exchanges(tuple(exchanges), len(entries) - len(exchanges))


def _why_unavailable(entry: Mapping[str, Any]) -> str:
    if isinstance(size := entry.get("left_out_bytes"), int):
        return f"The messages of this call ({size:,} bytes) are too large to be kept with the item."
    return "The messages of this call are not stored; evidence: full, the default, keeps them."


def _facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call as the evidence lists it; durations in milliseconds, None where none is noted.

    `retries` are the attempts that failed, with the pause after each.
    """
    digest = _text(entry.get("recording"))
    return {
        "provider": _text(entry.get("provider")) or "",
        **{name: _text(entry.get(name)) for name in ("model", "block", "error")},
        **{name: _number(entry.get(name)) for name in _MEASURES},
        "is_recorded": bool(entry.get("recorded")),
        "recording": digest if digest is not None and _DIGEST.fullmatch(digest) else None,
        "retries": [
            {
                "attempt": str(each.get("attempt", "?")),
                "reason": ": ".join(str(each[key]) for key in ("kind", "message") if key in each),
                "delay_s": _number(each.get("delay_s")),
            }
            for each in _mappings(entry.get("retries"))
        ],
    }


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _recorded(facts: Mapping[str, Any], library: Library, budget: TextBudget) -> Exchange:
    digest = facts["recording"]
    try:
        recording = library.read(digest)
    except RecordingError as error:
        return Exchange(facts, unavailable=str(error))
    if recording is None:
        return Exchange(facts, unavailable=f"Recording {digest[:12]} is not in the store any more.")
    return _exchange(facts, recording.question.identity, _reply(recording), budget)


def _reply(recording: Recording) -> dict[str, Any] | None:
    reply = recording.outcome
    if isinstance(reply, ProviderError):
        return None
    calls = list(reply.tool_calls)
    return {"text": reply.text, "tool_calls": calls, "finish_reason": reply.finish_reason}


def _exchange(
    facts: Mapping[str, Any], request: Mapping[str, Any], reply: Any, budget: TextBudget
) -> Exchange:
    received = None
    if isinstance(reply, Mapping):
        received = PageMessage(
            "assistant",
            budget.cut(_text(reply.get("text")) or None, _REPLY_CHARACTERS),
            tool_calls_of(reply.get("tool_calls"), budget),
        )
    written = request.get("parameters")
    parameters = dict(written) if isinstance(written, Mapping) else {}
    if schema := request.get("response_schema"):
        parameters["response_schema"] = schema
    return Exchange(
        facts,
        conversation_of(request.get("messages"), budget),
        budget.cut(parameters or None, _PARAMETERS_CHARACTERS),
        budget.cut(request.get("tools") or None, _PARAMETERS_CHARACTERS),
        received,
        _text(reply.get("finish_reason")) if isinstance(reply, Mapping) else None,
    )
