"""Which error each failing answer of a provider becomes."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

from evalcore.model.exchange import Endpoint, ErrorKind, ProviderError, Request
from evalcore.providers.failures import Refusals, refused, retry_after_s, streamed_failure
from evalcore.providers.registry import open_session, send
from tests.support.model_server import CUT, INVALID_JSON, RESET, Failure, model_server
from tests.unit.providers.asking import HELLO, KEY, ask, failure_of

PROTOCOLS = ("openai", "anthropic")
STREAMS = (False, True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("failure", "kind", "status"),
    [
        (Failure(400), ErrorKind.REQUEST, 400),
        (Failure(400, code="content_filter"), ErrorKind.CONTENT, 400),
        (Failure(400, message="our content policy forbids that"), ErrorKind.CONTENT, 400),
        (Failure(401), ErrorKind.AUTHENTICATION, 401),
        (Failure(403), ErrorKind.AUTHENTICATION, 403),
        (Failure(404), ErrorKind.REQUEST, 404),
        (Failure(408), ErrorKind.TIMEOUT, 408),
        (Failure(422), ErrorKind.REQUEST, 422),
        (Failure(429), ErrorKind.RATE, 429),
        (Failure(500), ErrorKind.SERVER, 500),
        (Failure(503), ErrorKind.SERVER, 503),
        (Failure(504), ErrorKind.TIMEOUT, 504),
        (Failure(529), ErrorKind.SERVER, 529),
        (Failure(302), ErrorKind.REQUEST, 302),
    ],
    ids=lambda value: str(getattr(value, "status", value)),
)
def test_the_status_says_the_kind(
    protocol: str, failure: Failure, kind: ErrorKind, status: int
) -> None:
    error = failure_of(failure, protocol)

    assert (error.kind, error.status) == (kind, status)
    assert error.message.startswith(f"{protocol} at 127.0.0.1:")
    assert failure.message in error.message


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"error": {"message": "Unsupported value.", "param": "temperature"}}, "temperature"),
        ({"error": {"message": "`temperature` is deprecated for this model."}}, "temperature"),
        ({"detail": [{"loc": ["body", "stream_options"], "msg": "extra"}]}, "stream_options"),
        ({"message": {"detail": [{"loc": ["body", "stream_options"]}]}}, "stream_options"),
        ({"message": "[{'loc': ('body', 'stream_options'), 'msg': 'Extra'}]"}, "stream_options"),
        ([{"error": {"message": 'Unknown name "stream_options"'}}], "stream_options"),
        ({"errors": {"temperature": ["unknown field"]}}, "temperature"),
        ("Temperature is not supported", "temperature"),
        ({"message": "property 'encoding_format' is unsupported"}, "encoding_format"),
        ({"error": {"message": "Unsupported parameter: 'max_tokens'."}}, "max_tokens"),
        ({"error": "no such model"}, ""),
    ],
    ids=[
        "OpenAI", "Anthropic", "FastAPI", "Mistral", "vLLM", "Google", "fields", "text",
        "embeddings", "limit", "another",
    ],
)  # fmt: skip
def test_a_refusal_names_parameters_in_each_providers_form(body: object, named: str) -> None:
    protocol = "openai-embeddings" if named == "encoding_format" else "openai"
    endpoint = Endpoint(protocol, "p", "http://h/v1")
    parameters = {"temperature": 0, "max_tokens": 5}
    request = Request(
        endpoint, "m", HELLO, parameters, stream=True, added=frozenset({"temperature"})
    )
    sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()

    error = refused(endpoint, "http://h/v1", 400, {}, sent)
    without = Refusals().without(request, error)

    assert (set() if without is None else without.refused) == set(filter(None, [named]))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("stream", STREAMS, ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("failure", "kind", "said"),
    [
        (CUT, ErrorKind.CONNECTION, "cut off"),
        (RESET, ErrorKind.CONNECTION, "connection was lost"),
        (INVALID_JSON, ErrorKind.SERVER, "not JSON; it begins: <html>not JSON</html>"),
        (Failure(how="empty"), ErrorKind.SERVER, 'begins: {"id": "x", "object": "nothing"}'),
    ],
    ids=["cut", "reset", "no JSON", "no choices"],
)
def test_a_broken_answer_says_how_it_is_broken(
    protocol: str, stream: bool, failure: Failure, kind: ErrorKind, said: str
) -> None:
    error = failure_of(failure, protocol, stream=stream)

    assert error.kind == kind
    assert said in error.message
    assert error.retryable


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_that_takes_too_long_is_a_timeout(protocol: str) -> None:
    error = failure_of(Failure(how="slow", delay_s=60), protocol, attempt_timeout_s=0.1)

    assert (error.kind, error.status) == (ErrorKind.TIMEOUT, None)
    assert "within 0.1 s" in error.message


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_secrets_that_the_server_repeats_are_in_no_message(protocol: str) -> None:
    said = f"no: {KEY}, {KEY} and abcdefgh12345678"
    with model_server(script=lambda _: Failure(401, message=said)) as server:
        headers = {"X-Token": "Bearer abcdefgh12345678"}
        endpoint = Endpoint(protocol, protocol, server.base_url, KEY, headers)
        with pytest.raises(ProviderError) as caught:
            ask(server, endpoint=endpoint)

    assert "no: [redacted], [redacted] and [redacted]" in str(caught.value)


def test_a_key_is_not_cut_in_half_and_shown() -> None:
    error = failure_of(Failure(500, message="x" * 290 + KEY))

    assert KEY[:8] not in error.message


def test_a_wrong_address_names_it_and_the_option() -> None:
    error = failure_of(Failure(404))

    assert "/v1/chat/completions; check base_url (http://127.0.0.1:" in error.message


async def _asked(endpoint: Endpoint) -> None:
    async with open_session() as session:
        await send(session, Request(endpoint, "m", HELLO, attempt_timeout_s=20))


@pytest.mark.parametrize("protocol", [*PROTOCOLS, "http"])
def test_nobody_who_listens_is_a_connection_error(protocol: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        with pytest.raises(ProviderError, match="no connection") as caught:
            asyncio.run(_asked(Endpoint(protocol, "mine", url, KEY)))

    assert caught.value.kind == ErrorKind.CONNECTION
    assert ("; is url right?" if protocol == "http" else "; is base_url right?") in str(
        caught.value
    )


@pytest.mark.parametrize("url", ["nonsense", "ftp://127.0.0.1/v1", "http://"])
def test_what_is_no_address_is_not_tried_again(url: str) -> None:
    with pytest.raises(ProviderError, match="base_url") as caught:
        asyncio.run(_asked(Endpoint("openai", "mine", url, KEY)))

    assert caught.value.kind == ErrorKind.REQUEST


@pytest.mark.parametrize(
    ("protocol", "host", "variable"),
    [
        ("openai", "api.openai.com", "OPENAI_API_KEY"),
        ("anthropic", "api.anthropic.com", "ANTHROPIC_API_KEY"),
    ],
)
def test_a_provider_that_needs_a_key_is_not_asked_without_one(
    protocol: str, host: str, variable: str
) -> None:
    with pytest.raises(ProviderError, match=rf"no key: set .*{variable}.*'mine'") as caught:
        asyncio.run(_asked(Endpoint(protocol, "mine", f"https://{host}/v1")))

    assert caught.value.kind == ErrorKind.AUTHENTICATION


def test_a_key_with_a_line_break_is_refused_and_not_shown() -> None:
    with pytest.raises(ProviderError) as caught:
        asyncio.run(_asked(Endpoint("openai", "mine", "http://127.0.0.1:9/v1", f"{KEY}\nX: y")))

    assert caught.value.kind == ErrorKind.REQUEST
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-1"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 50.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1e999"}, None),
        ({"retry-after": ""}, None),
    ],
    ids=str,
)
def test_retry_after_is_a_number_or_a_date(
    headers: Mapping[str, str], seconds: float | None
) -> None:
    assert retry_after_s(headers, 10.0) == seconds


OVER_QUOTA = "You exceeded your current quota, please check your plan and billing details."


def json_error(status: int | str, message: str = "refused", **fields: object) -> bytes:
    return json.dumps({"error": {"code": status, "message": message, **fields}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        pytest.param(402, b"", ErrorKind.CREDIT, id="402"),
        pytest.param(429, json_error("insufficient_quota"), ErrorKind.CREDIT, id="openai"),
        pytest.param(
            429, json_error("billing_hard_limit_reached"), ErrorKind.CREDIT, id="hard limit"
        ),
        pytest.param(429, json_error("", type="billing_error"), ErrorKind.CREDIT, id="billing"),
        pytest.param(
            400,
            json_error("", "Your credit balance is too low to access the Anthropic API."),
            ErrorKind.CREDIT,
            id="anthropic",
        ),
        pytest.param(
            429, json_error(429, "Your prepayment credits are depleted."), ErrorKind.CREDIT,
            id="google prepaid",
        ),
        pytest.param(
            403, json_error(403, details=[{"reason": "BILLING_DISABLED"}]), ErrorKind.CREDIT,
            id="google billing",
        ),
        pytest.param(
            429,
            json_error(429, OVER_QUOTA, details=[{"violations": [{"quotaId": "CallsPerDayFree"}]}]),
            ErrorKind.CREDIT,
            id="google per day",
        ),
        pytest.param(
            429, json_error(429, f"{OVER_QUOTA} Please retry in 34.07s."), ErrorKind.RATE,
            id="google per minute",
        ),
        pytest.param(
            429,
            json_error("rate_limit_exceeded", "Add a payment method at /account/billing."),
            ErrorKind.RATE,
            id="openai per minute",
        ),
        pytest.param(
            403, json_error(403, "The model requires moderation; the input was flagged"),
            ErrorKind.CONTENT, id="moderation",
        ),
        pytest.param(403, json_error(403), ErrorKind.AUTHENTICATION, id="forbidden"),
    ],
)  # fmt: skip
def test_a_refusal_for_want_of_credit_is_told_from_one_that_passes(
    status: int, body: bytes, kind: ErrorKind
) -> None:
    endpoint = Endpoint("openai", "m", "http://127.0.0.1:9/v1")
    assert refused(endpoint, endpoint.base_url, status, {}, body).kind == kind


def test_a_refusal_in_an_answer_of_status_200_has_the_kind_of_its_code() -> None:
    endpoint = Endpoint("openai", "m", "http://127.0.0.1:9/v1")
    kinds = [
        streamed_failure(endpoint, endpoint.base_url, {"code": code, "message": "no"}).kind
        for code in (402, 401, 429, 503)
    ]
    assert kinds == ["credit", "authentication", "rate", "server"]


def test_retry_after_reaches_the_error() -> None:
    assert failure_of(Failure(429, retry_after="2")).retry_after_s == 2


@contextmanager
def endless_stream(chunk: bytes, times: int) -> Iterator[str]:
    """Serve one event stream of the same bytes over and over; give the address."""

    def serve(listener: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
                connection.sendall(head)
                for _ in range(times):
                    connection.sendall(chunk)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    thread.join(10)


@pytest.mark.parametrize(
    ("chunk", "said"),
    [
        (b"x" * (1 << 20), "a line of more than 16 MiB"),
        (b"x" * (1 << 20) + b"\n", "more than 64 MiB"),
    ],
    ids=["without a line's end", "of many lines"],
)
def test_a_stream_that_does_not_end_is_cut_off(chunk: bytes, said: str) -> None:
    with endless_stream(chunk, 100) as base_url:
        endpoint = Endpoint("openai", "openai", base_url, KEY)
        request = Request(endpoint, model="m", messages=HELLO, attempt_timeout_s=60.0, stream=True)

        async def asked() -> None:
            async with open_session() as session:
                await send(session, request)

        with pytest.raises(ProviderError, match=said):
            asyncio.run(asked())
