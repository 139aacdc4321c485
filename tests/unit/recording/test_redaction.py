"""No secret reaches a recording, and ordinary text stays as it is."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evalcore.errors import SettingsError
from evalcore.model.exchange import Endpoint, ProviderError, Reply, Request, StreamEvent
from evalcore.model.mode import Mode
from evalcore.recording.content import readable
from evalcore.recording.recorder import Recorder
from evalcore.recording.redaction import Redaction
from evalcore.redaction.redactor import REDACTED, Redactor
from evalcore.storage.local import LocalStore
from tests.unit.recording.asking import ENDPOINT, KEY, ask, find, recorder, save


def written(store: LocalStore) -> str:
    """Return everything in the recordings of a store as text."""
    return "".join(
        readable(store.get(info.key).data).decode() for info in store.list("recordings/")
    )


def test_patterns_of_the_configuration_are_covered() -> None:
    redaction = Redaction(Redactor((), [r"FH-\d{5}", "x*"]))
    assert redaction.value({"FH-12345": ["of FH-54321", 1, None]}) == {
        REDACTED: [f"of {REDACTED}", 1, None]
    }


def test_a_pattern_that_is_none_is_a_mistake_that_names_it() -> None:
    with pytest.raises(SettingsError, match=r"redact_patterns: '\(': ?.*|'\(' is no regular"):
        Redaction.of_process({}, ["("])


LEAKING = Endpoint("openai", "acme", "http://127.0.0.1:1/v1", KEY, {"X-Team": "Bearer t0p-secret"})


@pytest.mark.parametrize(
    "outcome",
    [
        Reply(f"the key is {KEY}, the team's t0p-secret"),
        Reply("", tool_calls=({"id": "1", "name": "f", "arguments": {KEY: ["t0p-secret"]}},)),
        Reply("", events=(StreamEvent(0, 1.0, {"text": f"{KEY} t0p-secret"}),)),
        ProviderError("authentication", f"no such key: {KEY} (t0p-secret)", 401),
    ],
    ids=["text", "tool-call", "event", "failure"],
)
def test_keys_in_use_are_covered_wherever_they_come_back(
    tmp_path: Path, outcome: Reply | ProviderError
) -> None:
    store = LocalStore(tmp_path)
    request = ask(f"is {KEY} or t0p-secret right?", endpoint=LEAKING)
    try:
        told = str(save(recorder(store, "record"), request, outcome))
    except ProviderError as error:
        told = error.message
    for secret in (KEY, "t0p-secret"):
        assert secret not in written(store) + told
    assert REDACTED in written(store)


def test_a_request_with_a_secret_in_it_finds_its_recording(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    request = ask("my key is sk-abcdef123456")
    save(recorder(store, "record"), request, Reply("take care of it"))
    assert "sk-abcdef" not in written(store)
    assert find(recorder(store, "replay"), request) is not None


def test_two_requests_that_differ_in_something_secret_are_two(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    writer = recorder(store, "record", None, r"\d{16}")
    for card in ("1" * 16, "2" * 16):
        save(writer, ask(f"pay with {card}"), Reply(f"paid with {card[0]}"))
    found = find(recorder(store, "replay"), ask("pay with " + "2" * 16))
    assert found is not None
    assert found.text == "paid with 2"
    assert "1" * 16 not in written(store)


@pytest.mark.parametrize(
    "pieces",
    [["the key is sk-", "abc123", "def456"], ["sk-whole-12345 and sk-", "abc123", "def456"]],
    ids=["spread", "whole-and-spread"],
)
def test_a_secret_that_is_spread_over_events_takes_their_data_with_it(pieces: list[str]) -> None:
    events = [StreamEvent(n, float(n), {"delta": text, "n": "x"}) for n, text in enumerate(pieces)]
    covered = Redaction(Redactor()).events(events)
    assert [(event.sequence, event.offset_ms, event.data) for event in covered] == [
        (n, float(n), REDACTED) for n in range(3)
    ]


def test_a_pattern_for_the_end_of_a_text_is_looked_for_in_each_event() -> None:
    (covered, _) = Redaction(Redactor((), ["code$"])).events(
        [StreamEvent(0, 1.0, {"a": "the code"}), StreamEvent(1, 2.0, {"b": "is known"})]
    )
    assert covered.data == {"a": f"the {REDACTED}"}


def http(**parameters: Any) -> Request:
    endpoint = replace(ENDPOINT, protocol="http", provider="shop")
    given: dict[str, Any] = {"method": "POST", "url": "http://shop/a", "headers": {}, "body": None}
    return ask(endpoint=endpoint, model="", parameters=given | parameters)


@pytest.mark.parametrize(
    ("recorded", "replayed"),
    [
        ({"headers": {"Authorization": "Token 1"}}, {"headers": {"Authorization": "Token 2"}}),
        ({"headers": {"x-api-key": "abc1"}}, {"headers": {"x-api-key": "abc2"}}),
        ({"headers": {"Cookie": "a=1"}}, {"headers": {"Cookie": "a=2"}}),
        ({"url": "http://me:pw1@shop/a"}, {"url": "http://me:pw2@shop/a"}),
        ({"url": "http://shop/a?api_key=k1&q=x"}, {"url": "http://shop/a?api_key=k2&q=x"}),
    ],
    ids=["authorization", "api-key", "cookie", "user", "query"],
)
def test_an_http_request_is_found_with_another_key(
    tmp_path: Path, recorded: dict[str, Any], replayed: dict[str, Any]
) -> None:
    store = LocalStore(tmp_path)
    save(recorder(store, "record"), http(**recorded), Reply("done"))
    assert find(recorder(store, "replay"), http(**replayed)) is not None
    for secret in ("Token 1", "abc1", "a=1", "pw1", "k1"):
        assert secret not in written(store)


@pytest.mark.parametrize(
    "other",
    [
        {"headers": {"Accept": "text/plain"}},
        {"url": "http://shop/a?q=2"},
        {"body": {"password": "wrong-1"}},
        {"method": "PUT"},
    ],
    ids=["header", "query", "body", "method"],
)
def test_another_http_request_is_another_question(tmp_path: Path, other: dict[str, Any]) -> None:
    store = LocalStore(tmp_path)
    save(recorder(store, "record"), http(body={"password": "right-1"}), Reply("done"))
    assert find(recorder(store, "auto"), http(**other)) is None
    assert "right-1" not in written(store)


def test_the_environment_s_secrets_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "shop-key-77")
    store = LocalStore(tmp_path)
    opened = Recorder(store, Mode.RECORD, Redaction.of_process(os.environ))
    assert save(opened, ask(), Reply("it is shop-key-77")).text == f"it is {REDACTED}"
    assert "shop-key-77" not in written(store)


def test_a_miss_does_not_tell_a_secret(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    save(recorder(store, "record"), ask(f"the key {KEY} is old"), Reply("yes"))
    with pytest.raises(ProviderError) as caught:
        find(recorder(store, "replay"), ask(f"the key {KEY} is new"))
    assert KEY not in caught.value.message
    assert '"…' in caught.value.message or "…" in caught.value.message
