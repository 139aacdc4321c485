"""What a call used and costs: by the configuration's own prices, else by genai-prices (offline)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import isfinite
from typing import Any, Final, TypeAlias

from evalcore.model.evidence import (
    NOTHING,
    TOKEN_PRICES,
    measure_mistake,
)
from evalcore.model.exchange import BATCH, NO_USAGE, ProviderError, Usage

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
        if measure_mistake("", value, whole=True) is None:
            return int(value)
    return None


def counted(usage: Mapping[str, Any], name: str) -> int | None:
    """Return a number of tokens, None where it is not said, or NaN; raise `ProviderError`."""
    value = usage.get(name)
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    mistake = measure_mistake(f"the answer's usage.{name}", value, whole=True)
    if value is None or mistake is None:
        return value
    raise ProviderError(METRICS, mistake, _ANSWERED)


def charged(usage: Mapping[str, Any], name: str) -> float | None:
    """Return a cost, None where it is not said, or NaN; raise `ProviderError`."""
    value = usage.get(name)
    if isinstance(value, Mapping):  # Perplexity's, part by part
        return charged(value, "total_cost")
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return None
    if (mistake := measure_mistake(f"the answer's usage.{name}", value)) is None:
        return float(value)
    raise ProviderError(METRICS, mistake, _ANSWERED)


_MILLION = 1_000_000


_Prices: TypeAlias = Mapping[str, float]


# How genai-prices calls the parts of a usage.
_PARTS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "cache_write_1h_tokens": "cache_write_1h_tokens",
    "input_audio_tokens": "input_audio_tokens",
    "reasoning_tokens": "output_reasoning_tokens",
    "output_audio_tokens": "output_audio_tokens",
}


def cost_of(
    model: str, provider: str, usage: Usage, prices: Mapping[str, _Prices] = NOTHING
) -> float | None:
    """Return US dollars, None if the model has no price or no tokens were counted.

    `prices` maps a model, or `provider/model`, to US dollars per million tokens by kind
    and goes before the bundled table; `batch` is the share of them that a call of a batch costs. In
    the table, a model is looked for at its provider, and everywhere if no provider of that name is
    known.
    """
    if usage.total_tokens is None:
        return None
    own = prices.get(f"{provider}/{model}") or prices.get(model)
    if own is not None:
        share = own.get("batch", 1.0) if usage.tier == BATCH else 1.0
        return share * _sum(own, usage)
    rule = _bundled(model, provider, usage.tier)
    if rule is None:
        return None
    from genai_prices import Usage as Counts

    counts = {part: getattr(usage, name) for name, part in _PARTS.items()}
    try:
        price = rule.calc_price(Counts(**counts))
    except ValueError:  # a part that is more than the whole
        whole = Counts(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        price = rule.calc_price(whole)
    return float(price["total_price"])


def _sum(prices: _Prices, usage: Usage) -> float:
    """Return what tokens cost; a kind without a price of its own costs what the others do."""
    full = dict(prices)
    dollars = (usage.input_tokens or 0) * full["input"] + (usage.output_tokens or 0) * full[
        "output"
    ]
    for kind, (price, usual) in TOKEN_PRICES.items():
        full.setdefault(price, full[usual])
        if count := getattr(usage, kind):
            dollars += count * (full[price] - full[usual])
    return dollars / _MILLION


@lru_cache(maxsize=1024)
def _bundled(model: str, provider: str, tier: str | None) -> Any:
    """Return the prices of genai-prices for this model, None if it has none."""
    import genai_prices

    # No look for newer prices: runs have to be repeatable, and may have no network.
    ids = dict.fromkeys((provider.lower(), None))
    context = None if tier is None else {"processing": tier, "service_tier": tier}
    for provider_id in ids:
        with suppress(LookupError):
            return genai_prices.calc_price(
                genai_prices.Usage(input_tokens=1, output_tokens=1),
                model_ref=model,
                provider_id=provider_id,
                price_context=context,
            ).model_price
    return None
