"""A real Prefect server for the tests."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.servers import free_port, running, wait_until_ready

GROUP = "prefect"
PROCESSES = pytest.StashKey[list[int]]()
"""The server and the worker of this test process, by the numbers of their process groups."""
_BATCH = "200"
_DATABASE = "prefect.db"
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
    process: int = 0

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of a child process that is to reach this server."""
        return clean_environment(self.home) | {"PREFECT_API_URL": self.url}


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
        yield replace(server, process=process.pid)


@dataclass(frozen=True)
class NewDatabase:
    """The database of a new server, made once for all test processes: making it takes 7 s."""

    folder: Path

    @property
    def _path(self) -> Path:
        return self.folder / "new.db"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.folder / "lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def copy(self, home: Path) -> None:
        """Give a server that is not yet started this database."""
        with self._locked():
            if not self._path.exists():
                with prefect_server(self.folder / "home"):
                    self._keep(self.folder / "home")
        home.mkdir(parents=True, exist_ok=True)
        _copy_database(self._path, home / _DATABASE)

    @contextlib.contextmanager
    def server(self, home: Path) -> Iterator[PrefectServer]:
        """Run a server that has this database; if it is the first, it makes it."""
        with contextlib.ExitStack() as stack:
            with self._locked():
                if not self._path.exists():
                    server = stack.enter_context(prefect_server(home))
                    self._keep(home)
            if not (home / _DATABASE).exists():
                self.copy(home)
                server = stack.enter_context(prefect_server(home))
            yield server

    def _keep(self, home: Path) -> None:
        _copy_database(home / _DATABASE, self.folder / "unfinished.db")
        (self.folder / "unfinished.db").rename(self._path)


@pytest.fixture(scope="session")
def new_prefect_database(tmp_path_factory: pytest.TempPathFactory) -> NewDatabase:
    """The database of a server that nothing was done with."""
    base = tmp_path_factory.getbasetemp()
    # The folder that xdist's processes share; each has one of its own in it.
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "prefect-database"
    folder.mkdir(exist_ok=True)
    return NewDatabase(folder)


def signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to the processes of a group, if there are any."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


@pytest.fixture(scope="session")
def running_prefect(
    pytestconfig: pytest.Config,
    new_prefect_database: NewDatabase,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[PrefectServer]:
    """One Prefect server per test process."""
    with new_prefect_database.server(tmp_path_factory.mktemp("prefect")) as server:
        pytestconfig.stash.setdefault(PROCESSES, []).append(server.process)
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
