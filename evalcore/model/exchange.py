"""One exchange with a provider: what is asked, what comes back, how it fails.

Providers speak it, recordings hold it, targets and judges ask for it through `Complete`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import fsum
from typing import Any, Final, Literal, NamedTuple, Protocol

import orjson

from evalcore.errors import TargetError
from evalcore.model.evidence import NOTHING, Metrics, TokenCounts
from evalcore.wording import json_text

_SLASHES: Final = re.compile("(?<!:)//+")
_OPENED: Final = re.compile(r"\s*<(think|thinking|reasoning)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_CLOSED: Final = re.compile(r"(.*?)</(?:think|thinking|reasoning)>", re.DOTALL)
# What evalcore adds to a request by itself, unless its parameter is null.
ADDED_PARAMETERS: Final = ("temperature", "max_tokens", "response_format")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider listens.

    `protocol` is a row of `providers.registry` (openai, anthropic, http); `provider` is what
    limits, prices and reports call it: the name of the target's entry or of the protocol. `api_key`
    and the values of `headers` are secrets: never part of an identity, a message or a recording.
    So are `values`: what stands for the references (`${{ NAME }}`) in `base_url`, and in the `url`
    of a request over `http`.
    """

    protocol: str
    provider: str
    base_url: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def address(self) -> str:
        """The base URL that is called, without doubled slashes in its path."""
        return _SLASHES.sub("/", self.filled(self.base_url))

    def filled(self, url: str) -> str:
        """Return a URL with the values of its references in it."""
        for reference, value in self.values.items():
            url = url.replace(reference, value)
        return url


@dataclass(frozen=True, slots=True)
class Request:
    """One call to a provider; JSON values throughout.

    `messages` have `role` and `content` (text, or segments `{type: text|image|file, value}`), a
    tool's message also `tool_call_id`, an assistant's `tool_calls`. `parameters` have the names of
    the OpenAI API (temperature, max_tokens, top_p, stop, seed, …); a protocol translates them and
    leaves out those that are null. `response_schema` is a JSON Schema of the answer. `added` names
    what evalcore added to the author's request, `refused` what the provider refused of it
    (`providers.additions`); neither is part of the question. For protocol `http`, `parameters` are
    `{method, url, headers, body}` and `messages` and `model` are empty; header values that are
    secret stand in the endpoint. `attempt_timeout_s` bounds one attempt. A request over `http` with
    `allowed_addresses` reaches those and public ones only, others anything.
    """

    endpoint: Endpoint
    model: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    parameters: Mapping[str, Any] = NOTHING
    tools: tuple[Mapping[str, Any], ...] = ()
    response_schema: Mapping[str, Any] | None = None
    stream: bool = False
    attempt_timeout_s: float | None = None
    added: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    allowed_addresses: tuple[str, ...] | None = None

    def identity(self) -> dict[str, Any]:
        """Return what makes two requests the same question: no secret, no time limit, no address.

        The address is left out so that a recording made at one proxy replays at another; the
        provider's name is in. Whether the answer is streamed changes nothing in it.
        """
        return {
            "provider": self.endpoint.provider,
            "protocol": self.endpoint.protocol,
            "model": self.model,
            "messages": [dict(message) for message in self.messages],
            "parameters": {
                name: value
                for name, value in self.parameters.items()
                if value is not None or name not in ADDED_PARAMETERS
            },
            "tools": [dict(tool) for tool in self.tools],
            "response_schema": self.response_schema,
        }


def request_digest(identity: Mapping[str, Any], *, iteration: int, invocation: int) -> str:
    """Return the SHA-256 (hex) that names a recording.

    `invocation` counts, from 0, how often the same item asked the same before.
    """
    named = {**identity, "iteration": iteration, "invocation": invocation}
    options = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    return hashlib.sha256(orjson.dumps(named, option=options)).hexdigest()


@dataclass(frozen=True)
class Usage(TokenCounts):
    """Tokens of one call as the provider counted them; None where it did not say.

    `tier` is what the provider calls the service that it billed (`batch`, `flex`, `priority`), None
    for the usual one.
    """

    tier: str | None = None

    @property
    def counts(self) -> dict[str, int]:
        """What was counted, by the fields of `Metrics`."""
        counts = dict(vars(self))
        counts["batch_tokens"] = self.total_tokens if counts.pop("tier") == BATCH else None
        return {name: count for name, count in counts.items() if count is not None}

    def plus(self, other: Usage) -> Usage:
        """Return what two calls of one tier used together."""
        sums = self.counts
        for name, count in other.counts.items():
            sums[name] = sums.get(name, 0) + count
        sums.pop("batch_tokens", None)
        return Usage(**sums, tier=self.tier)


NO_USAGE = Usage()
BATCH: Final = "batch"
"""The tier of calls that are billed as a part of a batch."""


class StreamEvent(NamedTuple):
    """One event of a streamed answer; `offset_ms` since the request was sent."""

    sequence: int
    offset_ms: float
    data: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `latency_ms` from the last byte sent to the last one received, of the last
    attempt.

    `text` is the answer (for `http` the body). `tool_calls` are `{id, name, arguments}` with parsed
    arguments. `notes` say what of the answer could not be stored and was replaced. `cost_usd` is
    None where no price is known. `attempts` counts the calls made,
    `recorded` says that none was made now.
    """

    text: str
    model: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    usage: Usage = NO_USAGE
    cost_usd: float | None = None
    latency_ms: float = 0.0
    ttft_ms: float | None = None
    finish_reason: str | None = None
    status: int = 200
    events: tuple[StreamEvent, ...] = ()
    attempts: int = 1
    recorded: bool = False
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> Metrics:
        """What was measured of the call."""
        return Metrics(self.latency_ms, self.ttft_ms, self.cost_usd, **self.usage.counts)

    def after(self, unused: Reply) -> Reply:
        """Return the reply with what one before it took that could not be used."""
        costs = (unused.cost_usd, self.cost_usd)
        return replace(
            self,
            usage=self.usage.plus(unused.usage),
            cost_usd=None if None in costs else fsum(cost for cost in costs if cost is not None),
            latency_ms=unused.latency_ms + self.latency_ms,
            attempts=unused.attempts + self.attempts,
        )


BOUNDS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The parameters that bound an answer."""

ANTHROPIC_TOKENS: Final = 4_096
"""The bound that `providers.anthropic` sends where a request has none: that API wants one."""


class Cut(StrEnum):
    """What ended an answer before its end, as a note of several answers says it."""

    LENGTH = "at max_tokens"
    FILTER = "by a content filter"
    INTERRUPTED = "by the provider"


_CUTS: Final[Mapping[str, Cut]] = {
    **dict.fromkeys(("length", "max_tokens", "max_completion_tokens"), Cut.LENGTH),
    **dict.fromkeys(("max_output_tokens", "model_length"), Cut.LENGTH),
    "model_context_window_exceeded": Cut.LENGTH,
    **dict.fromkeys(("content_filter", "content_filtered", "refusal", "safety"), Cut.FILTER),
    **dict.fromkeys(("recitation", "blocklist", "prohibited_content", "spii"), Cut.FILTER),
    **dict.fromkeys(("image_safety", "error_toxic", "guardrail_intervened"), Cut.FILTER),
    **dict.fromkeys(("pause_turn", "abort", "error", "incomplete"), Cut.INTERRUPTED),
    **dict.fromkeys(("malformed_function_call", "load", "unload"), Cut.INTERRUPTED),
    "insufficient_system_resource": Cut.INTERRUPTED,
}


def cut_of(finish_reason: object) -> Cut | None:
    """Return what cut an answer that ended for this reason; None for an answer that is whole."""
    return _CUTS.get(finish_reason.lower()) if isinstance(finish_reason, str) else None


def call_notes(request: Request, reply: Reply) -> dict[str, Any]:
    """Return what `details.calls` says of an answer beside its measures.

    `truncated` says why an answer that was cut is none: a limit cut it that its author has not set,
    or nothing but reasoning came. `unpriced` is the model whose tokens were counted and whose price
    is not known.
    """
    notes: dict[str, Any] = {}
    if reply.finish_reason is not None:
        notes["finish_reason"] = reply.finish_reason
    if (cut := cut_of(reply.finish_reason)) is not None:
        bounded = any(request.parameters.get(name) is not None for name in BOUNDS)
        if not reply.tool_calls and not split_reasoning(reply.text)[1].strip():
            why = f"the answer ended ({reply.finish_reason}) with nothing but reasoning"
            notes["truncated"] = why
        # Without a bound of its author evalcore sends one to this API alone.
        elif cut is Cut.LENGTH and not bounded and request.endpoint.protocol == "anthropic":
            why = f"evalcore's default limit cut the answer ({reply.finish_reason}); "
            notes["truncated"] = f"{why}give the target 'max_tokens'"
    if reply.cost_usd is None and request.model and reply.usage.total_tokens is not None:
        notes["unpriced"] = request.model
    return notes


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the reasoning that stands before a model's answer ("" if none does), and the answer.

    Reasoning stands between `<think>` and `</think>` (`thinking`, `reasoning`). Servers whose
    prompt ends with the opening tag leave it out; without the closing one all is reasoning.
    """
    parts: list[str] = []
    end = 0
    while (block := _OPENED.match(text, end)) is not None:
        parts.append(block[2])
        end = block.end()
    if not parts and (closed := _CLOSED.match(text)) is not None:
        parts.append(closed[1])
        end = closed.end()
    if not end:
        return "", text
    return "\n\n".join(part.strip() for part in parts), text[end:].lstrip()


class ErrorKind(StrEnum):
    """Why a call gave no answer."""

    AUTHENTICATION = "authentication"
    CREDIT = "credit"
    RATE = "rate"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    CONTENT = "content"
    SERVER = "server"
    REQUEST = "request"


_RETRIED = frozenset({ErrorKind.RATE, ErrorKind.TIMEOUT, ErrorKind.CONNECTION, ErrorKind.SERVER})


class ProviderError(TargetError):
    """A call failed. `kind` is an `ErrorKind`; `status` the HTTP status where there was one.

    `retry_after_s` is what the provider asked for. `attempts` counts the calls made until then.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        status: int | None = None,
        retry_after_s: float | None = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(kind, message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.attempts = attempts

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling with every field."""
        fields = (self.kind, self.message, self.status, self.retry_after_s, self.attempts)
        return type(self), fields

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind in _RETRIED


class SkippedError(TargetError):
    """A limit prevented the call: the item ends `skipped` with this kind as its reason (budget)."""


class Complete(Protocol):
    """Asks a provider for one work item: limits, retries, recording and cost are its business."""

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; raise `ProviderError` after the last retry, or `SkippedError`."""


async def no_provider(request: Request) -> Reply:
    """Raise `ProviderError`: this execution has no way to call a provider."""
    raise ProviderError(
        ErrorKind.REQUEST, f"provider '{request.endpoint.provider}' cannot be called here"
    )


def message_array(value: Any, role: str) -> list[Any]:
    """Return the messages that a value is; one that is none becomes a message of this role.

    A text and a mapping are the content as they are, any other value as JSON text; None is no
    message.
    """
    if value is None:
        return []
    if isinstance(value, list | tuple) and all(
        isinstance(each, Mapping) and "role" in each for each in value
    ):
        return list(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    content = dict(value) if isinstance(value, Mapping) else json_text(value)
    return [{"role": role, "content": content}]


Aggregation = Literal["mean", "min", "max"]
TRANSCRIPT: Final = "conversation"
"""The block of assertions on the whole conversation."""
_TURN: Final = "turn-"


class Turns(NamedTuple):
    """The turns of a case: its last `total` messages, each asked by itself.

    `window` bounds what the target and the checks of a turn see of the messages before, in pairs
    (beside the system's). With `stops` the turns after one below the threshold are not asked, and
    count as not passed.
    `expected` has the expected output of each turn, None where there is none.
    """

    total: int
    aggregation: Aggregation = "mean"
    window: int | None = None
    stops: bool = False
    expected: Sequence[Any] = ()


def turn_block(number: int) -> str:
    """Return the name of a turn in results, counted from 1."""
    return f"{_TURN}{number}"


def turn_number(block: str | None) -> int | None:
    """Return the number of the turn that a block is; None for any other block."""
    if block is None or not block.startswith(_TURN):
        return None
    return int(block.removeprefix(_TURN))


def windowed(
    messages: Sequence[Mapping[str, Any]], window: int | None
) -> tuple[Mapping[str, Any], ...]:
    """Return the system's messages and the last `window` pairs of the others; None means all."""
    if window is None:
        return tuple(messages)
    system = [message for message in messages if message["role"] == "system"]
    rest = [message for message in messages if message["role"] != "system"]
    return (*system, *rest[-2 * window :])


def asked_until(
    messages: Sequence[Mapping[str, Any]], answers: Sequence[str], turns: Turns, number: int
) -> list[Mapping[str, Any]]:
    """Return the conversation up to the question of a turn; `messages` are those of the case."""
    first = len(messages) - turns.total
    until = list(messages[:first])
    for question, answer in zip(messages[first : first + number - 1], answers, strict=False):
        until += [question, {"role": "assistant", "content": answer}]
    return [*until, messages[first + number - 1]]
