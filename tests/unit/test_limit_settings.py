"""Limits and prices in evalcore.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.errors import SettingsError
from evalcore.model.suite import ProviderLimits
from evalcore.settings import read_settings

TOML = """
rate_limits = "prefect"
[providers.openai]
requests_per_minute = 500
max_concurrency = 20
[prices."my-model"]
input = 0.5
output = 2
"""


def test_limits_and_prices_are_read(tmp_path: Path) -> None:
    (tmp_path / "evalcore.toml").write_text(TOML)
    settings = read_settings({}, tmp_path)
    assert settings.rate_limits == "prefect"
    assert settings.providers == {"openai": ProviderLimits(500, None, 20)}
    assert settings.prices == {"my-model": {"input": 0.5, "output": 2}}


def test_the_environment_names_who_keeps_the_rates(tmp_path: Path) -> None:
    assert read_settings({"EVALCORE_RATE_LIMITS": "mine"}, tmp_path).rate_limits == "mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "providers = 1", "providers: expected a mapping, got the number 1", id="no-table"
        ),
        pytest.param(
            "[providers.openai]\nrpm = 1",
            "providers.openai.rpm: unknown key 'rpm'.",
            id="unknown-key",
        ),
        pytest.param(
            "[providers.openai]\nrequests_per_minute = 0",
            "providers.openai.requests_per_minute: must be more than 0, got the number 0",
            id="zero",
        ),
        pytest.param(
            "[prices.m]\ninput = 1",
            "prices.m: 'output' is missing (US dollars per million tokens)",
            id="half-a-price",
        ),
    ],
)
def test_a_mistake_says_where_it_stands(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "evalcore.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_settings({}, tmp_path)
    assert str(caught.value) == f"{tmp_path / 'evalcore.toml'}: {message}"
