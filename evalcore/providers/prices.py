"""What a call costs: the configuration's own prices, else those of genai-prices (offline)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from evalcore.model.evidence import NOTHING
from evalcore.model.exchange import Usage
from evalcore.providers.price_cache import PriceCache, Row, user_price_cache

_MILLION = 1_000_000


class _Rule(NamedTuple):
    """Dollars per million tokens, valid up to `up_to` input tokens, and whose price it is.

    `name` is what the table calls the model.
    """

    input: float
    output: float
    up_to: float
    provider_id: str
    name: str


def cost_of(
    model: str, provider: str, usage: Usage, prices: Mapping[str, Mapping[str, float]] = NOTHING
) -> float | None:
    """Return US dollars, None if the model has no price or no tokens were counted.

    `prices` maps a model, or `provider/model`, to `{input, output}` in US dollars per million
    tokens and goes before the bundled table. In that, a
    model is looked for at its provider, and everywhere if no provider of that name is known.
    """
    input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
    if input_tokens is None and output_tokens is None:
        return None
    own = prices.get(f"{provider}/{model}") or prices.get(model)
    if own is not None:
        return (
            (input_tokens or 0) * own["input"] + (output_tokens or 0) * own["output"]
        ) / _MILLION
    rule = _bundled(model, provider)
    if rule is None:
        return None
    if (input_tokens or 0) >= rule.up_to:
        return _calculated(rule.name, rule.provider_id, input_tokens or 0, output_tokens or 0)
    return ((input_tokens or 0) * rule.input + (output_tokens or 0) * rule.output) / _MILLION


def has_price(
    model: str, provider: str, prices: Mapping[str, Mapping[str, float]] = NOTHING
) -> bool:
    """Whether `cost_of` knows what a call of this model costs."""
    return cost_of(model, provider, Usage(1, 1), prices) is not None


@lru_cache(maxsize=1024)
def _bundled(model: str, provider: str) -> _Rule | None:
    """Return the rule of the bundled table for this model, None if it has none."""
    # Where the table is imported already, it is quicker than a file.
    cache = None if "genai_prices" in sys.modules else user_price_cache()
    return cached_rule(model, provider, cache)


def cached_rule(model: str, provider: str, cache: PriceCache | None) -> _Rule | None:
    """Return the rule of a model by the cache, else by the bundled table.

    What the table has is stored in the cache, unless it depends on the time of the call.
    """
    if cache is not None and (row := cache.find(model, provider)) is not None:
        with suppress(TypeError, ValueError):
            return _rule_of_row(row)
    rule, is_constant = _table_rule(model, provider)
    if cache is not None and is_constant:
        cache.store(model, provider, _row_of_rule(rule))
    return rule


def _row_of_rule(rule: _Rule | None) -> Row:
    # JSON has no infinity.
    return [] if rule is None else [*rule[:2], min(rule.up_to, sys.float_info.max), *rule[3:]]


def _rule_of_row(row: Row) -> _Rule | None:
    """Return the rule that `_row_of_rule` stored; raise `TypeError` or `ValueError` for none."""
    if not row:
        return None
    input_, output, up_to, provider_id, name = row
    return _Rule(float(input_), float(output), float(up_to), str(provider_id), str(name))


def _table_rule(model: str, provider: str) -> tuple[_Rule | None, bool]:
    """Return the rule of genai-prices, None if it has none; and whether it holds at any time."""
    import genai_prices

    # No look for newer prices: runs have to be repeatable, and may have no network.
    ids = dict.fromkeys((provider.lower(), None))
    # Of an adapter's `azureopenai:gpt-4o` the table knows the second part.
    names = dict.fromkeys((model, model.partition(":")[2] or model))
    for name, provider_id in product(names, ids):
        try:
            price: Any = genai_prices.calc_price(
                genai_prices.Usage(input_tokens=1, output_tokens=1),
                model_ref=name,
                provider_id=provider_id,
            )
        except LookupError:
            continue
        sides = [price.model_price.input_mtok or 0, price.model_price.output_mtok or 0]
        starts = [tier.start for side in sides for tier in getattr(side, "tiers", ())]
        base = [float(getattr(side, "base", side)) for side in sides]
        up_to = min(starts, default=float("inf"))
        rule = _Rule(base[0], base[1], up_to, str(price.provider.id), name)
        # Several prices are those of days or hours.
        return rule, not isinstance(price.model.prices, list)
    return None, True


@lru_cache(maxsize=4096)
def _calculated(model: str, provider_id: str, input_tokens: int, output_tokens: int) -> float:
    import genai_prices

    usage = genai_prices.Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    price = genai_prices.calc_price(usage, model_ref=model, provider_id=provider_id)
    return float(price.total_price)
