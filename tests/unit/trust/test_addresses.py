"""Which addresses and stores lie at or below those that are allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from evalcore.storage.address import is_allowed_store
from evalcore.trust.network import is_allowed_address, is_public

ALLOWED = ("https://llm.example/v1", "http://127.0.0.1:8080")


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("https://llm.example/v1", True),
        ("https://llm.example/v1/", True),
        ("HTTPS://LLM.Example:443/v1/chat", True),
        ("http://127.0.0.1:8080/any", True),
        ("${{ EVAL_URL }}", True),
        ("https://llm.example/v1/${{ NAME }}", True),
        ("https://llm.example/v10", False),
        ("https://llm.example/v1/../admin", False),
        ("https://llm.example/v1/%2e%2e/admin", False),
        ("https://llm.example/v1/%252e%252e/admin", False),
        ("https://llm.example/v1\\..\\admin", False),
        ("http://llm.example/v1", False),
        ("https://llm.example.evil.test/v1", False),
        ("https://llm.example@evil.test/v1", False),
        ("https://user:pass@llm.example/v1", False),
        ("https://${{ NAME }}.llm.example/v1", False),
        ("https://{{ host }}/v1", False),
        ("http://127.0.0.1:8081/", False),
        ("${{ EVAL_URL }}.evil.test/", False),
        ("${{ EVAL_URL }}@evil.test/", False),
        ("${{ EVAL_URL }}/../x", False),
        ("${{ EVAL_URL:-https://evil.test }}", False),
        ("https://evil.test/?${{ EVAL_KEY }}", False),
        ("//llm.example/v1", False),
        ("https://[::1", False),
        ("", False),
    ],
)
def test_an_address_is_compared_part_by_part(address: str, allowed: bool) -> None:
    assert is_allowed_address(address, ALLOWED) is allowed


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("s3://evals/production", True),
        ("s3://evals/production/", True),
        ("S3://evals/production/team", True),
        ("s3://evals/production2", False),
        ("s3://evals/production/../secret", False),
        ("s3://evals/production//x", False),
        ("s3://evals/production/%2e%2e/secret", False),
        ("s3://evals/production?endpoint=evil.test", False),
        ("s3://evals/production#x", False),
        ("s3://key@evals/production", False),
        ("s3://other/production", False),
        ("stores", True),
        ("./stores/team", True),
        ("stores/../stores/team", True),
        ("stores/../secret", False),
        ("stores-of-others", False),
        ("stores/link", False),
        ("/etc", False),
        ("", False),
        ("stores\0", False),
    ],
)
def test_a_store_is_the_allowed_one_or_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, allowed: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stores").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "stores" / "link").symlink_to("../secret")

    assert is_allowed_store(address, ("s3://evals/production", "stores")) is allowed


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::5db8:d822", True),
        ("127.8.9.1", False),
        ("0.0.0.0", False),
        ("10.1.2.3", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),
        ("::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False),
        ("fd00::1", False),
        ("fe80::1%eth0", False),
    ],
)
def test_only_addresses_of_the_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("file://{here}/stores/team", True),
        ("file://localhost{here}/stores", True),
        ("FILE://{here}/stores", True),
        ("{here}/stores", True),
        ("file://{here}/stores/%2e%2e/secret", False),
        ("file://{here}/stores%2f..%2fsecret", False),
        ("file://elsewhere{here}/stores", False),
        ("file://{here}/stores?x", False),
        ("file://stores", False),
        ("file:{here}/stores", False),
    ],
)
def test_a_folder_is_the_same_by_its_path_and_by_its_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, allowed: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stores").mkdir()

    assert is_allowed_store(address.format(here=tmp_path), ("stores",)) is allowed
