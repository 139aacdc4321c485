"""Targets of provider `any-llm`: the adapter's own client asks a real HTTP server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalcore.model.exchange import ErrorKind, ProviderError, Reply
from evalcore.model.suite import Target
from evalcore.providers.registry import open_session, send
from evalcore.targets.registry import build
from tests.support.model_server import UNAUTHORIZED, Failure, ModelServer, model_server
from tests.support.shell import Ended, evalcore

KEY = "key-of-azure-1"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


def ask(**options: Any) -> Reply:
    """Return what the target answers to one message."""
    target: Any = build(Target("cloud", "any-llm", options), environment={})
    request = target.chat.request([{"role": "user", "content": "Lima is large"}])

    async def answer() -> Reply:
        async with open_session() as session:
            return await send(session, request)

    return asyncio.run(answer())


def azure(server: ModelServer, **options: Any) -> Reply:
    return ask(model="azureopenai:gpt-4o-mini", base_url=server.url, api_key=KEY, **options)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_answer_has_its_text_tokens_and_times(server: ModelServer, stream: bool) -> None:
    reply = azure(server, stream=stream, temperature=0.5)
    assert (reply.text, reply.usage.output_tokens) == ("Lima is large", 3)
    assert (reply.ttft_ms is not None) == stream
    asked = server.requests[-1]
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert (asked.body["model"], asked.body["temperature"]) == ("gpt-4o-mini", 0.5)


@pytest.mark.parametrize(
    ("failure", "kind", "retry_after_s"),
    [
        (Failure(429, retry_after="7"), ErrorKind.RATE, 7.0),
        (Failure(503, retry_after="7"), ErrorKind.SERVER, 7.0),
        (Failure(429, code="insufficient_quota"), ErrorKind.CREDIT, None),
        (UNAUTHORIZED, ErrorKind.AUTHENTICATION, None),
        (Failure(500), ErrorKind.SERVER, None),
        (Failure(400), ErrorKind.REQUEST, None),
        (Failure(how="reset"), ErrorKind.CONNECTION, None),
    ],
    ids=lambda value: str(value) if isinstance(value, ErrorKind) else "",
)
def test_a_failure_is_of_its_kind_after_one_attempt(
    failure: Failure, kind: ErrorKind, retry_after_s: float | None
) -> None:
    with model_server(failures=[failure] * 3) as server:
        with pytest.raises(ProviderError) as caught:
            azure(server)
        assert (caught.value.kind, caught.value.retry_after_s) == (kind, retry_after_s)
        assert server.stats().requests == 1


def test_no_key_of_the_environment_goes_to_an_address_of_the_suite(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-of-openai")
    assert ask(model="openai:gpt-4o-mini", base_url=server.base_url).text == "Lima is large"
    assert "secret-of-openai" not in str(server.requests[-1].headers)


def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    with pytest.raises(ProviderError, match="AZURE_OPENAI_API_KEY") as caught:
        ask(model="azureopenai:gpt-4o")
    assert caught.value.kind == ErrorKind.AUTHENTICATION


def run(folder: Path, target: dict[str, Any], *flags: str) -> Ended:
    suite = {
        "targets": [{"name": "cloud", "provider": "any-llm", **target}],
        "execution": {"target": "cloud"},
        "tests": [
            {"id": "echo", "input": "Lima", "assertions": [{"type": "equals", "value": "Lima"}]}
        ],
    }
    (folder / "cloud.eval.yaml").write_text(json.dumps(suite))
    environment = {"AZURE_OPENAI_API_KEY": KEY}
    arguments = ("run", "cloud.eval.yaml", "--json", *flags)
    return evalcore(*arguments, store=folder / "store", cwd=folder, env=environment)


@pytest.mark.multiprocess
def test_a_run_is_priced_recorded_and_replayed(server: ModelServer, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"AZURE_KEY={KEY}\n")
    target = {
        "model": "azureopenai:gpt-4o-mini",
        "base_url": server.url,
        "api_key": "${{ AZURE_KEY }}",
    }
    recorded = run(tmp_path, target, "--mode", "record")
    asked = server.stats().requests
    replayed = run(tmp_path, target, "--mode", "replay")
    assert recorded.code == 0, recorded.out + recorded.err
    assert server.stats().requests == asked
    (item,) = recorded.report["cases"][0]["items"]
    assert item["metrics"]["cost_usd"] > 0
    assert replayed.report["cases"][0]["items"] == [item]


def test_a_model_without_its_provider_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    wrong = run(tmp_path, {"model": "gpt-4o"})
    assert wrong.code == 2
    assert "targets[0].model" in wrong.err
