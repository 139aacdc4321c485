"""Proxies that the environment names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import pytest

from evalcore.errors import SettingsError
from evalcore.model.exchange import Endpoint, ProviderError, Reply
from evalcore.trust.network import proxy_for
from tests.support.servers import free_port, serving
from tests.unit.providers.asking import sent

FAR = "http://llm.corp.example/v1"
ANSWER = b'{"choices": [{"message": {"content": "Lima"}, "finish_reason": "stop"}]}'
NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, *map(str.upper, NAMES)):
        monkeypatch.delenv(name, raising=False)


class Server(BaseHTTPRequestHandler):
    """Answers as a model; as a proxy it refuses to connect with `status`."""

    asked: ClassVar[list[str]] = []
    status: ClassVar[int] = 407

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def do_CONNECT(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status, "No way")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def proxy(status: int = 407) -> Iterator[tuple[str, list[str]]]:
    """Run a proxy; yield its host and port, and what it is asked."""
    asked: list[str] = []
    with serving(type("Proxy", (Server,), {"asked": asked, "status": status})) as server:
        yield f"127.0.0.1:{server.server_port}", asked


def ask(address: str) -> Reply:
    return sent(Endpoint("openai", "far", address, "sk-none-1234567"))


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("scheme", ["", "http://", "//", "http://user:word@"])
def test_a_proxy_of_the_environment_is_asked(
    monkeypatch: pytest.MonkeyPatch, name: str, scheme: str
) -> None:
    with proxy() as (place, asked):
        monkeypatch.setenv(name, scheme + place)

        assert ask(FAR).text == "Lima"
        assert asked == [f"{FAR}/chat/completions"]


@pytest.mark.parametrize(
    ("excluded", "url", "is_asked"),
    [
        ("corp.example", FAR, False),
        (".corp.example", FAR, False),
        ("other,llm.corp.example:80", FAR, False),
        ("llm.corp.example:8080", FAR, True),
        ("orp.example", FAR, True),
        ("*", FAR, False),
        ("", FAR, True),
        ("", "http://localhost:8000/v1", False),
        ("", "http://127.0.0.2/v1", False),
    ],
)
def test_no_proxy_names_hosts_domains_and_ports(
    monkeypatch: pytest.MonkeyPatch, excluded: str, url: str, is_asked: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "proxy:3128")
    monkeypatch.setenv("NO_PROXY", excluded)

    assert (proxy_for(url) is not None) is is_asked


@pytest.mark.parametrize("value", ["socks5://127.0.0.1:9", "http://", "http://h:port"])
def test_what_is_no_http_proxy_is_told(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ALL_PROXY", value)

    with pytest.raises(SettingsError, match="is no HTTP proxy"):
        proxy_for(FAR)
    with pytest.raises(ProviderError, match="is no HTTP proxy") as caught:
        ask(FAR)
    assert not caught.value.retryable


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_where_nobody_listens_is_named(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    place = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv(f"{scheme}_proxy", f"user:secret-word@{place}")

    with pytest.raises(ProviderError) as caught:
        ask(FAR.replace("http:", f"{scheme}:"))

    assert f"no connection to {place}, the proxy" in caught.value.message
    assert "secret-word" not in caught.value.message
    assert not caught.value.retryable


@pytest.mark.parametrize(("status", "is_retried"), [(407, False), (403, False), (502, True)])
def test_a_proxy_that_refuses_to_connect_is_named(
    monkeypatch: pytest.MonkeyPatch, status: int, is_retried: bool
) -> None:
    with proxy(status) as (place, asked):
        monkeypatch.setenv("HTTPS_PROXY", place)

        with pytest.raises(ProviderError) as caught:
            ask(FAR.replace("http:", "https:"))

    assert asked == ["llm.corp.example:443"]
    refused = f"the proxy refused: {status} No way"
    assert refused in caught.value.message
    assert caught.value.retryable is is_retried


def test_a_server_without_tls_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy() as (place, _), pytest.raises(ProviderError, match="no TLS with") as caught:
        ask(f"https://{place}/v1")
    assert not caught.value.retryable
