"""The numbers that providers say: in range, or the error of the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, Final

from evalcore.model.exchange import NO_USAGE, ProviderError, Usage
from evalcore.model.measures import is_amount, is_count, not_a_count, not_an_amount

METRICS: Final = "metrics"
"""The kind of the error."""

_ANSWERED: Final = 200
# Where the shapes of OpenAI (chat and responses), Anthropic, Google and their likes have a number;
# the first place that is there counts.
_INPUT: Final = ("prompt_tokens", "input_tokens", "promptTokenCount")
_OUTPUT: Final = ("completion_tokens", "output_tokens", "candidatesTokenCount")
_TOTAL: Final = ("total_tokens", "totalTokenCount")
_DETAILS: Final = ("prompt_tokens_details", "input_tokens_details")
_ANSWER_DETAILS: Final = ("completion_tokens_details", "output_tokens_details")
_CACHED: Final = (
    *(f"{details}.cached_tokens" for details in _DETAILS),
    "cache_read_input_tokens",
    "prompt_cache_hit_tokens",
    "cached_tokens",
    "cachedContentTokenCount",
)
_WRITTEN: Final = (
    *(f"{details}.cache_write_tokens" for details in _DETAILS),
    "cache_creation_input_tokens",
)
_WRITTEN_1H: Final = (
    "cache_creation.ephemeral_1h_input_tokens",
    *(f"{details}.cache_creation_token_details.ephemeral_1h_input_tokens" for details in _DETAILS),
)
_REASONING: Final = (
    *(f"{details}.reasoning_tokens" for details in _ANSWER_DETAILS),
    "output_tokens_details.thinking_tokens",
    "reasoning_tokens",
    "thoughtsTokenCount",
)
_AUDIO_IN: Final = tuple(f"{details}.audio_tokens" for details in _DETAILS)
_AUDIO_OUT: Final = tuple(f"{details}.audio_tokens" for details in _ANSWER_DETAILS)
_ANTHROPIC: Final = frozenset({"cache_read_input_tokens", "cache_creation_input_tokens"})
_USUAL_TIERS: Final = frozenset({"", "auto", "default", "standard", "on_demand"})


def usage_of(raw: Any, tier: Any = None) -> Usage:
    """Return the tokens that an answer's `usage` counts; raise `ProviderError`.

    `tier` is the service that the answer says it was billed as. Providers count reasoning and what
    a cache held within the output and the input, or beside them: the total tells, and that a part
    is not larger than the whole.
    """
    if not isinstance(raw, Mapping):
        return NO_USAGE
    sent, answered = (
        next((count for name in names if (count := counted(raw, name)) is not None), None)
        for names in (_INPUT, _OUTPUT)
    )
    total = _first(raw, _TOTAL)
    cached, written, reasoning = (_first(raw, names) for names in (_CACHED, _WRITTEN, _REASONING))
    in_cache, thought = (cached or 0) + (written or 0), reasoning or 0
    beside = None if total is None else total - (sent or 0) - (answered or 0)
    is_anthropic = "input_tokens" in raw and not _ANTHROPIC.isdisjoint(raw)
    is_missing = beside != thought and beside in {in_cache, in_cache + thought}
    if in_cache and (is_anthropic or is_missing or in_cache > (sent or 0)):
        sent = (sent or 0) + in_cache
        beside = None if beside is None else beside - in_cache
    if thought > (answered or 0) or (thought and beside is not None and beside >= thought):
        answered = (answered or 0) + thought
    elif not thought and answered is not None and beside is not None and beside > 0:
        # Gemini's server counts reasoning in the total alone.
        answered, reasoning = answered + beside, beside
    return Usage(
        sent,
        answered,
        cached,
        written,
        _first(raw, _WRITTEN_1H),
        _first(raw, _AUDIO_IN),
        reasoning,
        _first(raw, _AUDIO_OUT),
        tier_of(tier),
    )


def tier_of(raw: Any) -> str | None:
    """Return the service that was billed, None for the usual one."""
    return None if not isinstance(raw, str) or raw.lower() in _USUAL_TIERS else raw.lower()


def _first(usage: Mapping[str, Any], paths: Iterable[str]) -> int | None:
    """Return the count at the first path that has one; what is no count is as none."""
    for path in paths:
        value: Any = usage
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        if is_count(value):
            return int(value)
    return None


def counted(usage: Mapping[str, Any], name: str) -> int | None:
    """Return a number of tokens, None where it is not said, or NaN; raise `ProviderError`."""
    value = usage.get(name)
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, float) and value.is_integer() and is_amount(value):
        value = int(value)
    if value is None or is_count(value):
        return value
    raise ProviderError(METRICS, not_a_count(f"the answer's usage.{name}", value), _ANSWERED)


def charged(usage: Mapping[str, Any], name: str) -> float | None:
    """Return a cost, None where it is not said, or NaN; raise `ProviderError`."""
    value = usage.get(name)
    if isinstance(value, Mapping):  # Perplexity's, part by part
        return charged(value, "total_cost")
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return None
    if is_amount(value):
        return float(value)
    raise ProviderError(METRICS, not_an_amount(f"the answer's usage.{name}", value), _ANSWERED)
