"""Tokens as the shapes of providers count them."""

from __future__ import annotations

from typing import Any

import pytest

from evalcore.model.exchange import ProviderError, Usage
from evalcore.providers.prices import charged, usage_of

THOUGHT = {"completion_tokens_details": {"reasoning_tokens": 1000}}
CACHED = {"prompt_tokens_details": {"cached_tokens": 900}}


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        pytest.param(
            {"prompt_tokens": 1000, "completion_tokens": 1100, "total_tokens": 2100, **THOUGHT},
            Usage(1000, 1100, reasoning_tokens=1000),
            id="openai-reasoning-inside",
        ),
        pytest.param(
            {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 1110, **THOUGHT},
            Usage(100, 1010, reasoning_tokens=1000),
            id="xai-reasoning-beside",
        ),
        pytest.param(
            {"prompt_tokens": 33, "completion_tokens": 50, "reasoning_tokens": 700},
            Usage(33, 750, reasoning_tokens=700),
            id="perplexity-reasoning-without-total",
        ),
        pytest.param(
            {"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 618},
            Usage(7, 611, reasoning_tokens=600),
            id="gemini-thoughts-in-the-total-alone",
        ),
        pytest.param(
            {"prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, **CACHED},
            Usage(1000, 10, cached_tokens=900),
            id="openai-cached-inside",
        ),
        pytest.param(
            {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_cache_hit_tokens": 900},
            Usage(1000, 10, cached_tokens=900),
            id="deepseek-cached",
        ),
        pytest.param(
            {
                "prompt_tokens": 100,
                "completion_tokens": 50,
                "total_tokens": 150,
                "prompt_tokens_details": {"audio_tokens": 80, "cached_tokens": 0},
                "completion_tokens_details": {"audio_tokens": 30, "reasoning_tokens": 0},
            },
            Usage(100, 50, 0, None, None, 80, 0, 30),
            id="openai-audio",
        ),
        pytest.param(
            {
                "input_tokens": 1000,
                "output_tokens": 200,
                "total_tokens": 1200,
                "input_tokens_details": {"cached_tokens": 900},
                "output_tokens_details": {"reasoning_tokens": 150},
            },
            Usage(1000, 200, cached_tokens=900, reasoning_tokens=150),
            id="responses",
        ),
        pytest.param(
            {
                "input_tokens": 100,
                "cache_read_input_tokens": 900,
                "cache_creation_input_tokens": 500,
                "cache_creation": {
                    "ephemeral_5m_input_tokens": 300,
                    "ephemeral_1h_input_tokens": 200,
                },
                "output_tokens": 10,
            },
            Usage(1500, 10, 900, 500, 200),
            id="anthropic-cached-beside",
        ),
        pytest.param(
            {
                "promptTokenCount": 1000,
                "candidatesTokenCount": 20,
                "thoughtsTokenCount": 300,
                "cachedContentTokenCount": 800,
                "totalTokenCount": 1320,
            },
            Usage(1000, 320, cached_tokens=800, reasoning_tokens=300),
            id="google",
        ),
        pytest.param({"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 0}, Usage(3, 4)),
        pytest.param({"completion_tokens_details": None, "prompt_tokens": 3}, Usage(3)),
    ],
)
def test_parts_of_the_tokens_are_kept_apart(raw: Any, usage: Usage) -> None:
    assert usage_of(raw) == usage


@pytest.mark.parametrize(
    ("said", "tier", "batch"),
    [
        ("batch", "batch", 7),
        ("default", None, None),
        ("priority", "priority", None),
        (3, None, None),
    ],
)
def test_the_billed_service_is_kept(said: Any, tier: str | None, batch: int | None) -> None:
    usage = usage_of({"prompt_tokens": 3, "completion_tokens": 4}, said)

    assert usage.tier == tier
    assert usage.counts.get("batch_tokens") == batch


def test_a_sum_that_is_no_count_is_an_error() -> None:
    with pytest.raises(ProviderError, match=r"usage\.prompt_tokens is -1"):
        usage_of({"prompt_tokens": -1})


@pytest.mark.parametrize("said", [-1, "7", None, {}])
def test_a_part_that_is_no_count_is_as_none(said: Any) -> None:
    raw = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": said}}
    assert usage_of({**raw, "total_tokens": said}) == Usage(3)


def test_a_cost_by_parts_is_its_total() -> None:
    assert charged({"cost": {"input_tokens_cost": 0.1, "total_cost": 0.4}}, "cost") == 0.4
