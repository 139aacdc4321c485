"""What is shown of a run in Prefect, on a server that answers and on one that does not."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from prefect import flow, runtime
from prefect.artifacts import create_markdown_artifact
from prefect.settings import PREFECT_API_URL, temporary_settings

from evalcore.prefect.publish import RunProgress, deliver
from tests.support.prefect_api import artifacts
from tests.support.prefect_server import PrefectServer

pytestmark = [pytest.mark.prefect, pytest.mark.slow]


class Line:
    """What carries bytes between Prefect's client and its server, until it is cut."""

    def __init__(self, listener: socket.socket, server: tuple[str, int]) -> None:
        self._listener, self._server = listener, server
        self._carries = threading.Event()
        self._carries.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """Carry nothing inside: connections stay open, and no answer comes."""
        self._carries.clear()
        try:
            yield
        finally:
            self._carries.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._carries.wait()
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def line(prefect: PrefectServer) -> Iterator[Line]:
    """The line to the server, for the flows of this process."""
    port = int(prefect.url.split(":")[2].partition("/")[0])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        with temporary_settings({PREFECT_API_URL: address}):
            yield Line(listener, ("127.0.0.1", port))


def test_all_that_is_published_has_one_deadline(
    line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[str] = []

    def create(name: str) -> object:
        begun.append(name)
        return create_markdown_artifact(markdown="x", key=name)

    one, two, three = (partial(create, name) for name in ("one", "two", "three"))

    @flow(name="publishes")
    def publishes() -> str:
        deliver({"create one": one})
        with line.cut():
            deliver({"create two": two, "create three": three}, within_s=1.0)
        return str(runtime.flow_run.id)

    with caplog.at_level(logging.WARNING):
        identity = publishes()
    assert begun == ["one", "two"]
    assert "no answer of Prefect within 1 s; left out: create two, create three" in caplog.text
    assert "one" in artifacts(UUID(identity))
    assert "three" not in artifacts(UUID(identity))


def test_what_prefect_does_not_take_is_logged_and_the_rest_is_sent(
    prefect: PrefectServer, caplog: pytest.LogCaptureFixture
) -> None:
    @flow(name="publishes")
    def publishes() -> str:
        deliver(
            {
                "create a": lambda: create_markdown_artifact(markdown="x", key="NO KEY"),
                "create b": lambda: create_markdown_artifact(markdown="y", key="b"),
            }
        )
        return str(runtime.flow_run.id)

    with caplog.at_level(logging.WARNING):
        identity = publishes()
    assert "could not create a: " in caplog.text
    assert artifacts(UUID(identity)) == {"b": "y"}


def test_progress_ends_at_all_and_is_never_more(prefect: PrefectServer) -> None:
    @flow(name="progresses")
    def progresses() -> str:
        with RunProgress("s", 10, 5) as progress:
            progress.add(5)
            progress.add(10)
        return str(runtime.flow_run.id)

    shown: Any = artifacts(UUID(progresses()))
    assert shown == {"evalcore-s-progress": 100.0}
