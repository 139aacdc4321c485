"""S3 when the network, the server or the configuration is not as it should be."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar
from uuid import uuid4

import pytest

from evalcore.errors import EvalError, ObjectNotFoundError, SettingsError, StoreError
from evalcore.storage import s3 as s3_module
from evalcore.storage.s3 import S3Settings, S3Store
from tests.support.servers import (
    ACCESS_KEY,
    BUCKET,
    SECRET_KEY,
    Fault,
    FaultyProxy,
    S3Server,
    faulty_proxy,
    free_port,
    serving,
)

pytestmark = pytest.mark.s3

CONFLICT = Fault(
    409,
    method="PUT",
    body=b"<Error><Code>ConditionalRequestConflict</Code><Message>again</Message></Error>",
)
BUSY = Fault(503, body=b"<Error><Code>SlowDown</Code><Message>slow down</Message></Error>")
LOST = Fault(loses_answer=True, method="PUT")
LOST_AS_500 = Fault(500, loses_answer=True, method="PUT")


@pytest.fixture
def proxy(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    monkeypatch.setattr(s3_module, "_CONFLICT_WAITS_S", (0.01,) * 9)
    monkeypatch.setattr("botocore.retryhandler.random", SimpleNamespace(random=lambda: 0.01))
    with faulty_proxy(s3.url) as running:
        yield running
        assert running.unused == ()


@pytest.fixture
def direct(s3: S3Server) -> S3Store:
    """A store that nothing comes between."""
    return S3Store(BUCKET, uuid4().hex, S3Settings(endpoint_url=s3.url))


@pytest.fixture
def spoilt(proxy: FaultyProxy, direct: S3Store) -> S3Store:
    """The same store, reached through the proxy."""
    settings = S3Settings(endpoint_url=proxy.url, read_timeout_s=2.0, max_attempts=3)
    return S3Store(BUCKET, direct.url.rpartition("/")[2], settings)


# A conditional write that meets trouble


@pytest.mark.parametrize("faults", [[CONFLICT] * 4, [BUSY, CONFLICT], [LOST], [LOST_AS_500]])
def test_a_conditional_write_is_repeated_and_counts_as_done(
    proxy: FaultyProxy, spoilt: S3Store, direct: S3Store, faults: list[Fault]
) -> None:
    proxy.inject(*faults)
    created = spoilt.put_if_absent("a", b"1")
    assert created is not None
    assert direct.get("a") == (b"1", created)
    proxy.inject(*faults)
    swapped = spoilt.compare_and_swap("a", b"2", created)
    assert swapped is not None
    assert direct.get("a") == (b"2", swapped)


def test_a_conflict_that_never_ends_is_an_error(proxy: FaultyProxy, spoilt: S3Store) -> None:
    proxy.inject(*[CONFLICT] * 10)
    with pytest.raises(StoreError, match=r"a/b: .*409.*try again later"):
        spoilt.put_if_absent("a/b", b"1")


@pytest.mark.parametrize(
    "faults", [[CONFLICT], [LOST_AS_500, CONFLICT]], ids=["conflict", "lost-and-conflict"]
)
def test_a_file_is_sent_whole_each_time(
    proxy: FaultyProxy, spoilt: S3Store, direct: S3Store, tmp_path: Path, faults: list[Fault]
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"0123456789" * 500_000)
    proxy.inject(*faults)
    etag = spoilt.put_if_absent("a", source)
    assert direct.get("a") == (source.read_bytes(), etag)


@pytest.mark.parametrize("fault", [BUSY, CONFLICT], ids=["503", "409"])
@pytest.mark.parametrize("content", [b"mine", b"other"], ids=["same-content", "other-content"])
def test_a_repeated_write_does_not_claim_what_another_wrote(
    proxy: FaultyProxy, spoilt: S3Store, direct: S3Store, fault: Fault, content: bytes
) -> None:
    other = direct.put_if_absent("a", content)
    proxy.inject(fault)
    assert spoilt.put_if_absent("a", b"mine") is None
    proxy.inject(fault)
    assert spoilt.compare_and_swap("a", b"mine", "0" * 32) is None
    assert direct.get("a") == (content, other)


# Everything else that meets trouble


def test_requests_are_repeated_while_the_server_is_busy(
    proxy: FaultyProxy, spoilt: S3Store, direct: S3Store
) -> None:
    proxy.inject(BUSY, BUSY)
    etag = spoilt.put("a", b"1")
    proxy.inject(BUSY)
    assert spoilt.get("a") == (b"1", etag)
    proxy.inject(BUSY)
    assert [info.key for info in spoilt.list("")] == ["a"]
    proxy.inject(BUSY)
    spoilt.delete("a")
    assert list(direct.list("")) == []


def test_a_server_that_stays_busy_is_an_error_with_its_answer(
    proxy: FaultyProxy, spoilt: S3Store
) -> None:
    proxy.inject(*[BUSY] * 3)
    with pytest.raises(StoreError, match=r"a/b: .*503 .*SlowDown: slow down"):
        spoilt.get("a/b")


def test_a_body_that_breaks_off_is_fetched_again(
    proxy: FaultyProxy, spoilt: S3Store, direct: S3Store
) -> None:
    etag = direct.put("a", b"0123456789" * 100_000)
    proxy.inject(Fault(cuts_body=True), Fault(cuts_body=True))
    assert spoilt.get("a") == (b"0123456789" * 100_000, etag)


def test_a_body_that_always_breaks_off_is_an_error(
    proxy: FaultyProxy, spoilt: S3Store, direct: S3Store
) -> None:
    direct.put("a/b", b"0123456789" * 100_000)
    proxy.inject(*[Fault(cuts_body=True)] * 3)
    with pytest.raises(StoreError, match="a/b: "):
        spoilt.get("a/b")


def test_a_late_answer_is_asked_for_again(
    proxy: FaultyProxy, spoilt: S3Store, direct: S3Store
) -> None:
    etag = direct.put("a", b"1")
    proxy.inject(Fault(delay_s=4.0))
    assert spoilt.get("a") == (b"1", etag)


# Wrong configuration


def failure_of(store: S3Store) -> str:
    """Return the message that all kinds of requests fail with; it can be handed on."""
    messages = set()
    for action in (
        lambda: store.get("a/b"),
        lambda: store.put_if_absent("a/b", b""),
        lambda: store.put("a/b", b""),
        lambda: list(store.list("a/b")),
    ):
        with pytest.raises(StoreError) as caught:
            action()
        assert not isinstance(caught.value, ObjectNotFoundError)
        messages.add(str(pickle.loads(pickle.dumps(caught.value))))
    (message,) = messages
    return message


def test_a_missing_bucket_is_named(s3: S3Server) -> None:
    store = S3Store("no-such-bucket", "p", S3Settings(endpoint_url=s3.url))
    message = failure_of(store)
    assert "answered 404 for the bucket 'no-such-bucket' (NoSuchBucket: " in message
    assert message.endswith(
        "create it, or name another in the store's address (s3://bucket/prefix)"
    )


@pytest.mark.parametrize(
    ("access_key", "secret_key"),
    [(ACCESS_KEY, "wrong-secret"), ("nobody", SECRET_KEY)],
    ids=["secret", "user"],
)
def test_wrong_credentials_are_said_without_telling_them(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch, access_key: str, secret_key: str
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret_key)
    message = failure_of(S3Store(BUCKET, "p", S3Settings(endpoint_url=s3.url)))
    assert message.startswith(f"a/b: the S3 server {s3.url} answered 403 for the bucket ")
    assert "AWS_ACCESS_KEY_ID" in message
    assert secret_key not in message
    assert access_key not in message


@pytest.mark.parametrize(
    ("status", "code", "words", "advice"),
    [
        (403, "AccessDenied", "explicit deny: s3:x-amz-server-side-encryption", "ENCRYPTION"),
        (403, "AccessDenied", "no identity-based policy allows it", "may get, put, delete"),
        (403, "RequestTimeTooSkewed", "the difference is too large", "set the clock"),
        (403, "SignatureDoesNotMatch", "the signature does not match", "AWS_SECRET_ACCESS_KEY"),
        (400, "ExpiredToken", "the token has expired", "--resume r1` continues the run"),
        (403, "ExpiredToken", "the token has expired", "--resume r1` continues the run"),
        (501, "NotImplemented", "not implemented: If-None-Match", "needs conditional writes"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isalpha() else None,
)
def test_the_servers_own_reason_is_told(
    proxy: FaultyProxy, spoilt: S3Store, status: int, code: str, words: str, advice: str
) -> None:
    body = f"<Error><Code>{code}</Code><Message>{words}</Message></Error>".encode()
    proxy.inject(Fault(status, method="PUT", body=body))

    with pytest.raises(StoreError) as caught:
        spoilt.put_if_absent("runs/suite/r1/manifest.json", b"1")

    assert f"({code}: {words})" in str(caught.value)
    assert advice in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "written"),
    [
        ({}, {}),
        ({"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}, {"ServerSideEncryption": "AES256"}),
        (
            {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms", "AWS_SSE_KMS_KEY_ID": "k"},
            {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"},
        ),
    ],
    ids=["none", "S3's", "KMS"],
)
def test_the_environment_says_how_objects_are_encrypted(
    environment: dict[str, str], written: dict[str, str]
) -> None:
    assert S3Settings.from_environment(environment).written == written


def test_each_way_of_writing_asks_for_the_encryption(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = S3Settings(endpoint_url=s3.url, encryption="AES256")
    store = S3Store(BUCKET, uuid4().hex, settings)
    file = tmp_path / "file"
    file.write_bytes(b"x")

    store.put("put", b"1")
    etag = store.put_if_absent("absent", b"1")
    assert etag is not None
    assert store.compare_and_swap("absent", b"2", etag) is not None
    assert store.put_if_absent("file", file) is not None

    for key in ("put", "absent", "file"):
        head = store._client.head_object(Bucket=BUCKET, Key=store._name(key))
        assert head["ServerSideEncryption"] == "AES256", key


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"AWS_SERVER_SIDE_ENCRYPTION": "aes"}, "known: AES256, aws:kms, aws:kms:dsse"),
        ({"AWS_SSE_KMS_KEY_ID": "k"}, "needs AWS_SERVER_SIDE_ENCRYPTION=aws:kms"),
    ],
)
def test_an_encryption_that_is_none_is_refused(environment: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        S3Settings.from_environment(environment)


def test_a_server_on_this_machine_is_asked_without_a_proxy(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{free_port()}")
    store = S3Store(BUCKET, uuid4().hex, S3Settings(endpoint_url=s3.url))
    store.put("a", b"1")
    assert store.get("a").data == b"1"


def test_a_proxy_where_nobody_listens_is_named(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("HTTP_PROXY", place)
    settings = S3Settings(endpoint_url="http://s3.corp.example", max_attempts=1)

    with pytest.raises(StoreError, match=f"no connection to the proxy {place}"):
        S3Store(BUCKET, "p", settings).get("a")


def test_missing_credentials_are_said(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    message = failure_of(S3Store(BUCKET, "p", S3Settings(endpoint_url=s3.url)))
    assert message.startswith(f"a/b: no credentials for the S3 server {s3.url} ")


def test_an_endpoint_where_nobody_listens_is_named(s3: S3Server) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    store = S3Store(BUCKET, "p", S3Settings(endpoint_url=endpoint, max_attempts=1))
    message = failure_of(store)
    assert message.startswith(f"a/b: the S3 server {endpoint} cannot be reached (")
    assert "AWS_ENDPOINT_URL" in message


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("127.0.0.1:9000", "needs a scheme and a host"),
        ("ftp://host", "needs a scheme and a host"),
        ("http://", "needs a scheme and a host"),
        ("http://me:geheim@host:9000", "credentials do not belong"),
    ],
)
def test_an_endpoint_that_is_none_is_refused(endpoint: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says) as caught:
        S3Settings(endpoint_url=endpoint)
    assert "geheim" not in str(caught.value)


def test_a_bucket_name_that_cannot_be_is_an_error_with_a_message(s3: S3Server) -> None:
    with pytest.raises(EvalError, match="bucket"):
        S3Store("no bucket", "p", S3Settings(endpoint_url=s3.url)).get("a")


@pytest.mark.parametrize(
    ("environment", "endpoint", "region"),
    [
        ({}, None, None),
        ({"AWS_ENDPOINT_URL": ""}, None, None),
        ({"AWS_ENDPOINT_URL": "http://a", "AWS_DEFAULT_REGION": "r1"}, "http://a", "r1"),
        (
            {
                "AWS_ENDPOINT_URL": "http://a",
                "AWS_ENDPOINT_URL_S3": "http://b",
                "AWS_REGION": "r2",
                "AWS_DEFAULT_REGION": "r1",
            },
            "http://b",
            "r2",
        ),
    ],
    ids=["empty", "blank", "general", "particular"],
)
def test_the_environment_gives_endpoint_and_region(
    environment: dict[str, str], endpoint: str | None, region: str | None
) -> None:
    settings = S3Settings.from_environment(environment)
    assert (settings.endpoint_url, settings.region) == (endpoint, region)


def test_the_region_is_needed_only_without_an_endpoint(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    store = S3Store(BUCKET, uuid4().hex, S3Settings(endpoint_url=s3.url))
    assert store.put_if_absent("a", b"") is not None


# The probe


class ForgetfulS3(BaseHTTPRequestHandler):
    """A server that knows objects, but neither conditions nor lists."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}

    def do_PUT(self) -> None:
        self.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(200)

    def do_DELETE(self) -> None:
        self.objects.pop(self.path, None)
        self._answer(204)

    def _answer(self, status: int) -> None:
        self.send_response_only(status)
        self.send_header("ETag", '"same"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        pass


def test_the_probe_notices_a_server_that_ignores_conditions(s3: S3Server) -> None:
    with serving(ForgetfulS3) as server:
        settings = S3Settings(endpoint_url=f"http://127.0.0.1:{server.server_port}")
        assert S3Store(BUCKET, "p", settings).probe_conditional_writes() is False
    assert ForgetfulS3.objects == {}


def test_the_probe_notices_a_server_that_refuses_conditions(
    proxy: FaultyProxy, spoilt: S3Store
) -> None:
    proxy.inject(Fault(501, method="PUT", body=b"<Error><Code>NotImplemented</Code></Error>"))
    assert spoilt.probe_conditional_writes() is False


def test_the_probe_does_not_take_trouble_for_an_answer(s3: S3Server) -> None:
    settings = replace(S3Settings(), endpoint_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(StoreError, match="cannot be reached"):
        S3Store(BUCKET, "p", replace(settings, max_attempts=1)).probe_conditional_writes()


# Around it
