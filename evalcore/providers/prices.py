"""What a call costs: the configuration's own prices, else those of genai-prices (offline)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from evalcore.model.evidence import NOTHING, TOKEN_PRICES
from evalcore.model.exchange import BATCH, Usage
from evalcore.providers.price_cache import PriceCache, Row, user_price_cache
from evalcore.settings import PRICES

_MILLION = 1_000_000


_Prices: TypeAlias = Mapping[str, float]


class _Step(NamedTuple):
    """Dollars per million tokens by kind, of calls with more than `above` input tokens."""

    above: float
    prices: _Prices


_Rule: TypeAlias = tuple[_Step, ...]
"""The prices of a model, from the shortest input to the longest."""


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
    length = usage.input_tokens or 0
    return _sum(next(step.prices for step in reversed(rule) if length > step.above), usage)


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


def has_price(
    model: str, provider: str, prices: Mapping[str, Mapping[str, float]] = NOTHING
) -> bool:
    """Whether `cost_of` knows what a call of this model costs."""
    return cost_of(model, provider, Usage(1, 1), prices) is not None


@lru_cache(maxsize=1024)
def _bundled(model: str, provider: str, tier: str | None) -> _Rule | None:
    """Return the rule of the bundled table for this model, None if it has none."""
    # Where the table is imported already, it is quicker than a file.
    cache = None if "genai_prices" in sys.modules else user_price_cache()
    return cached_rule(model, provider, cache, tier)


def cached_rule(
    model: str, provider: str, cache: PriceCache | None, tier: str | None = None
) -> _Rule | None:
    """Return the rule of a model by the cache, else by the bundled table.

    What the table has is stored in the cache, unless it depends on the time of the call.
    """
    key = model if tier is None else f"{model} {tier}"
    if cache is not None and (row := cache.find(key, provider)) is not None:
        with suppress(TypeError, ValueError, KeyError):
            return _rule_of_row(row)
    rule, is_constant = _table_rule(model, provider, tier)
    if cache is not None and is_constant:
        cache.store(key, provider, [] if rule is None else [list(step) for step in rule])
    return rule


def _rule_of_row(row: Row) -> _Rule | None:
    """Return the rule that was stored; raise `TypeError`, `ValueError`, `KeyError` for none."""
    if not row:
        return None
    steps = tuple(
        _Step(float(above), {str(name): float(price) for name, price in dict(prices).items()})
        for above, prices in row
    )
    for step in steps:
        step.prices["input"], step.prices["output"]
    return steps


def _table_rule(model: str, provider: str, tier: str | None) -> tuple[_Rule | None, bool]:
    """Return the rule of genai-prices, None if it has none; and whether it holds at any time."""
    import genai_prices

    # No look for newer prices: runs have to be repeatable, and may have no network.
    ids = dict.fromkeys((provider.lower(), None))
    # Of an adapter's `azureopenai:gpt-4o` the table knows the second part.
    names = dict.fromkeys((model, model.partition(":")[2] or model))
    context = None if tier is None else {"processing": tier, "service_tier": tier}
    for name, provider_id in product(names, ids):
        try:
            price: Any = genai_prices.calc_price(
                genai_prices.Usage(input_tokens=1, output_tokens=1),
                model_ref=name,
                provider_id=provider_id,
                price_context=context,
            )
        except LookupError:
            continue
        # Several prices are those of days or hours.
        return _steps(price.model_price), not isinstance(price.model.prices, list)
    return None, True


def _steps(model_price: Any) -> _Rule:
    """Return what the table says of a model, tier by tier."""
    names = {name: f"{name}_mtok" for name in PRICES} | {"reasoning": "output_reasoning_mtok"}
    sides = {name: getattr(model_price, key) for name, key in names.items()}
    if sides["cache_write"] is None:
        sides["cache_write"] = model_price.cache_write_5m_mtok
    sides = {name: side for name, side in sides.items() if side is not None}
    sides = {"input": 0, "output": 0, **sides}
    starts = {tier.start for side in sides.values() for tier in getattr(side, "tiers", ())}
    return tuple(
        _Step(above, {name: _price_above(side, above) for name, side in sides.items()})
        for above in (-1, *sorted(starts))
    )


def _price_above(side: Any, above: float) -> float:
    tiers = [tier.price for tier in getattr(side, "tiers", ()) if tier.start <= above]
    return float(tiers[-1] if tiers else getattr(side, "base", side))
