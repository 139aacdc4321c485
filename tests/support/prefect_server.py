"""A real Prefect server for the tests."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers import running, wait_until_ready

_BATCH = "200"
_DATABASE = "prefect.db"
_NEW_DATABASE = "new.db"
# Batch settings (docs/reference/prefect.md). A flush interval below 1 s makes the server's loops
# spin: it then takes a whole core for itself.
_SERVER_SETTINGS = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": _BATCH,
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": _BATCH,
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": _BATCH,
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": _BATCH,
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": _BATCH,
    "PREFECT_SERVER_UI_ENABLED": "false",
}


@dataclass(frozen=True)
class PrefectServer:
    """A running server and the folder that Prefect keeps its things in."""

    url: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a child process that is to reach this server."""
        return clean_environment(self.home) | {"PREFECT_API_URL": self.url}

    def copy_database(self, home: Path) -> None:
        """Give another server the database of this one: making a new one takes 7 s."""
        home.mkdir(parents=True, exist_ok=True)
        _copy_database(self.home / _NEW_DATABASE, home / _DATABASE)

    def keep_new_database(self) -> None:
        """Keep the database as it is now, for `copy_database`."""
        _copy_database(self.home / _DATABASE, self.home / _NEW_DATABASE)


def _copy_database(source: Path, copy: Path) -> None:
    """Copy a database that a server may be writing to."""
    opened, copied = sqlite3.connect(source), sqlite3.connect(copy)
    with contextlib.closing(opened), contextlib.closing(copied):
        opened.backup(copied)


def clean_environment(home: Path) -> dict[str, str]:
    """Return this process's environment with nothing of Prefect's in it but a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }


@contextlib.contextmanager
def prefect_server(home: Path, port: int | None = None) -> Iterator[PrefectServer]:
    """Run a server on a loopback port (a free one) with the database in `home`, new or not.

    It needs some seconds to start.
    """
    port = port or free_port()
    server = PrefectServer(f"http://127.0.0.1:{port}/api", home)
    command = [sys.executable, "-m", "prefect", "server", "start"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    home.mkdir(parents=True, exist_ok=True)
    log = home / "server.log"
    with running(command, server.environment | _SERVER_SETTINGS, log) as process:
        wait_until_ready(process, f"{server.url}/health", log)
        yield server


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def running_prefect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """One Prefect server per test process."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as server:
        server.keep_new_database()
        yield server


@pytest.fixture(scope="module")
def prefect(running_prefect: PrefectServer) -> Iterator[PrefectServer]:
    """The server, configured for this process."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    before = set(os.environ)
    settings = {PREFECT_API_URL: running_prefect.url, PREFECT_HOME: running_prefect.home}
    with pytest.MonkeyPatch.context() as patch, temporary_settings(settings):
        patch.setenv("DO_NOT_TRACK", "1")
        yield running_prefect
        # Else they would look for the server when it is gone.
        APILogWorker.instance().drain()
        EventsWorker.drain_all()
    # The runner's own settings are for a whole process.
    for name in set(os.environ) - before:
        if name.startswith("PREFECT_"):
            del os.environ[name]
