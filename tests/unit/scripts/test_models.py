"""Entries of `models` of a script as options of a chat model."""

from __future__ import annotations

import pytest

from evalcore.scripts.models import model_entry


@pytest.mark.parametrize(
    ("provider", "host", "key"),
    [
        ("google_genai", "generativelanguage.googleapis.com", "GOOGLE_API_KEY"),
        ("groq", "api.groq.com", "GROQ_API_KEY"),
        ("mistralai", "api.mistral.ai", "MISTRAL_API_KEY"),
    ],
)
def test_services_with_an_address_of_their_own_need_no_base_url(
    provider: str, host: str, key: str
) -> None:
    entry = model_entry({"provider": provider, "model": "small", "config": {"temperature": 0}})
    assert entry.protocol == "openai"
    assert host in entry.options.pop("base_url")
    assert entry.options == {"model": "small", "temperature": 0, "api_key": f"${{{{ {key} }}}}"}


def test_an_address_and_a_key_that_are_written_stay() -> None:
    config = {"google_api_key": "${env.MINE}", "base_url": "http://localhost:1/v1"}
    options = model_entry({"provider": "google_genai", "model": "a", "config": config}).options
    assert options == {
        "model": "a",
        "api_key": "${{ MINE }}",
        "base_url": "http://localhost:1/v1",
    }
