"""What calls cost."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal

import genai_prices
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
        ("mine", "local", Usage(500_000, None), 1.0),
        ("gpt-4o", "azure", Usage(1_000_000, 1_000_000), 2.0),
        ("gpt-4o-mini", "openai", Usage(1_000_000, 1_000_000), 0.75),
        ("gpt-4o-mini", "my-entry", Usage(1_000_000, 1_000_000), 0.75),
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
        ("kinds", "local", Usage(1_000_000, 0, cache_write_1h_tokens=0), 10.0),
        ("kinds", "local", Usage(1_000_000, 0, None, 500_000, 500_000), 11.0),
        ("kinds", "local", Usage(0, 1_000_000, reasoning_tokens=500_000), 25.0),
        ("kinds", "local", Usage(0, 1_000_000, output_audio_tokens=500_000), 60.0),
        ("kinds", "local", Usage(1_000_000, 0, cached_tokens=500_000, tier="batch"), 2.75),
    ],
)
def test_cost_of_a_call(model: str, provider: str, usage: Usage, dollars: float | None) -> None:
    assert cost_of(model, provider, usage, OWN) == (
        None if dollars is None else pytest.approx(dollars)
    )


@pytest.mark.parametrize("given", [10, 199_999, 200_000, 200_001, 1_000_000])
@pytest.mark.parametrize(
    ("model", "provider"),
    [("gpt-4o-mini", "openai"), ("claude-sonnet-4-5", "anthropic"), ("gemini-2.5-pro", "google")],
)
def test_cost_agrees_with_the_table_below_and_above_a_tier(
    model: str, provider: str, given: int
) -> None:
    usage = genai_prices.Usage(
        input_tokens=given, output_tokens=1_000, cache_read_tokens=given // 2
    )
    expected = genai_prices.calc_price(usage, model_ref=model, provider_id=provider).total_price

    assert isinstance(expected, Decimal)
    counted = Usage(given, 1_000, cached_tokens=given // 2)
    assert cost_of(model, provider, counted) == pytest.approx(float(expected))


def test_own_prices_need_no_table() -> None:
    code = (
        "import sys\nfrom evalcore.providers.prices import cost_of\n"
        "from evalcore.model.exchange import Usage\n"
        "cost_of('m', 'p', Usage(1, 1), {'m': {'input': 1.0, 'output': 1.0}})\n"
        "print('genai_prices' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
