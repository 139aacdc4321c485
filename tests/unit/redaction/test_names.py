"""Which values of the environment are secret, and which are settings that people want to read."""

from __future__ import annotations

import pytest

from evalcore.redaction.names import secrets_of_environment

ADDRESSES = {
    "EVALCORE_STORE": "s3://my-bucket/nightly-evals-of-2026",
    "EVALCORE_ALLOW_STORES": "file:///home/ida/evaluations_of_summer_2026/store",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:8333",
    "AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com/openai/deployments/gpt-4o-mini-2024-07-18",
    "PREFECT_API_URL": "https://api.prefect.cloud/api/accounts/0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0",
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_an_address_is_no_secret(name: str) -> None:
    assert list(secrets_of_environment({name: ADDRESSES[name]})) == []


def test_the_key_of_a_webhook_is_secret() -> None:
    key = "XyZ0123456789abcdefGHIJK"
    found = secrets_of_environment({"HOOK": f"https://hooks.slack.com/services/T01/B02/{key}"})
    assert list(found) == [("HOOK", key)]
