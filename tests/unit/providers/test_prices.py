"""What calls cost."""

from __future__ import annotations

import pytest

from evalcore.model.exchange import Usage
from evalcore.providers.prices import cost_of

KINDS = {
    "kinds": {
        "input": 10.0,
        "output": 20.0,
        "cache_read": 1.0,
        "cache_write": 12.0,
        "reasoning": 30.0,
        "output_audio": 100.0,
        "batch": 0.5,
    }
}
OWN = {
    **KINDS,
    "mine": {"input": 2.0, "output": 10.0},
    "azure/gpt-4o": {"input": 1.0, "output": 1.0},
}


@pytest.mark.parametrize(
    ("model", "provider", "usage", "dollars"),
    [
        ("mine", "local", Usage(1_000_000, 100_000), 3.0),
        ("gpt-4o", "azure", Usage(1_000_000, 1_000_000), 2.0),
        ("gpt-4o-mini", "openai", Usage(1_000_000, 1_000_000), 0.75),
        ("gpt-4o-mini", "openai", Usage(), None),
        ("no-such-model", "openai", Usage(1, 1), None),
        # Published examples: a provider's bill for the usage of its own documentation.
        ("gpt-4o-mini", "openai", Usage(10_000, 100, cached_tokens=9_000), 0.000885),
        ("claude-sonnet-4-5", "anthropic", Usage(10_000, 100, cached_tokens=9_900), 0.00477),
        ("claude-sonnet-4-5", "anthropic", Usage(10_000, 0, cache_write_tokens=10_000), 0.0375),
        (
            "claude-sonnet-4-5",
            "anthropic",
            Usage(10_000, 0, cache_write_tokens=10_000, cache_write_1h_tokens=4_000),
            0.0465,
        ),
        ("claude-sonnet-4-5", "anthropic", Usage(1_000, 1_000, tier="batch"), 0.009),
        ("grok-4", "xai", Usage(100, 1_010, reasoning_tokens=1_000), 0.01545),
        ("gemini-2.5-flash", "google", Usage(1_000, 0, input_audio_tokens=1_000), 0.001),
        # A kind without a price of its own costs what the others do.
        ("mine", "local", Usage(1_000_000, 0, cached_tokens=500_000), 2.0),
        ("kinds", "local", Usage(1_000_000, 0, cached_tokens=500_000), 5.5),
        ("kinds", "local", Usage(0, 1_000_000, reasoning_tokens=500_000), 25.0),
        ("kinds", "local", Usage(0, 1_000_000, output_audio_tokens=500_000), 60.0),
    ],
)
def test_cost_of_a_call(model: str, provider: str, usage: Usage, dollars: float | None) -> None:
    assert cost_of(model, provider, usage, OWN) == (
        None if dollars is None else pytest.approx(dollars)
    )
