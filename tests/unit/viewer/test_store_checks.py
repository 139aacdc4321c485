"""Whether a viewer's store is there: what is said of servers that are away, and how soon."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from evalcore.errors import StoreError
from evalcore.storage.address import open_store
from evalcore.viewer.site import StoreCheck


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A port that refuses connections, named as the S3 endpoint."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        number = server.getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{number}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
        yield number


def test_a_server_that_is_away_is_asked_once_and_named_with_what_to_check(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalcore.viewer.site._ANSWER_S", 0.05)
    check = StoreCheck(open_store("s3://bucket/prefix"))
    with pytest.raises(StoreError, match=r"does not answer within .*AWS_ENDPOINT_URL"):
        check.require()
    monkeypatch.setattr(check, "_ask", lambda: pytest.fail("it is asked again"))
    with pytest.raises(StoreError, match="does not answer"):
        check.require()
