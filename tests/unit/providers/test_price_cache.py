"""Price rules that earlier processes have looked up."""

from __future__ import annotations

from pathlib import Path

import pytest
from genai_prices.data import providers

from evalcore.providers import prices
from evalcore.providers.price_cache import PriceCache, user_price_cache
from evalcore.providers.prices import cached_rule


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "evalcore" / "prices.json"


def no_table(_model: str, _provider: str, _tier: str | None) -> tuple[None, bool]:
    raise AssertionError("the table was read")


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-4o-mini", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
        ("gemini-2.5-pro", "google"),
        ("no-such-model", "openai"),
    ],
)
def test_a_stored_rule_is_that_of_the_table_and_is_not_looked_up_again(
    path: Path, model: str, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = cached_rule(model, provider, None)
    assert cached_rule(model, provider, PriceCache(path, "1")) == rule

    monkeypatch.setattr(prices, "_table_rule", no_table)
    assert cached_rule(model, provider, PriceCache(path, "1")) == rule


def test_a_price_that_depends_on_the_time_is_not_stored(path: Path) -> None:
    provider, model = next(
        (provider.id, model.id)
        for provider in providers
        for model in provider.models
        if isinstance(model.prices, list)
    )

    assert cached_rule(model, provider, PriceCache(path, "1")) is not None
    assert not path.exists()


def test_rules_of_another_version_of_the_table_are_not_used(path: Path) -> None:
    PriceCache(path, "1").store("m", "p", [1.0, 2.0, 3.0, "p", "m"])

    assert PriceCache(path, "1").find("m", "p") == [1.0, 2.0, 3.0, "p", "m"]
    assert PriceCache(path, "2").find("m", "p") is None


@pytest.mark.parametrize("damage", [b"", b"[]", b"{", b'{"table": 1, "rules": 2}'])
def test_a_damaged_file_is_as_none_and_written_anew(path: Path, damage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(damage)
    cache = PriceCache(path, "1")

    assert cache.find("m", "p") is None
    cache.store("m", "p", [])
    assert cache.find("m", "p") == []
    assert list(path.parent.iterdir()) == [path]


def test_a_row_that_is_no_rule_is_looked_up(path: Path) -> None:
    cache = PriceCache(path, "1")
    cache.store("gpt-4o-mini", "openai", ["cheap"])

    assert cached_rule("gpt-4o-mini", "openai", cache) == cached_rule("gpt-4o-mini", "openai", None)


def test_a_folder_that_cannot_be_written_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache = user_price_cache()

    cache.store("m", "p", [])
    assert cache.find("m", "p") is None
