"""A real PostgreSQL server for the tests: Debian's, as a user that is not root."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from tests.support.servers import _free_ports, _starting_alone

_USER = "evalcore"
_LOADED = ("-c", "fsync=off", "-c", "max_connections=100", "-c", "shared_buffers=32MB")


def missing_postgresql() -> str | None:
    """Return why no server can be run here; None if one can."""
    if _programs() is None:
        return "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL refuses to run as root, and `setpriv` is not installed"
    return None


@dataclass
class PostgreSQL:
    """A server on a loopback port; `restart` ends all its connections."""

    folder: Path
    port: int
    _numbers: Iterator[int] = field(default_factory=count)

    def new_database(self) -> str:
        """Return the URL of a new, empty database."""
        name = f"d{next(self._numbers)}"
        self._call("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", _USER, name)
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{name}"

    def start(self) -> None:
        """Start the server; return when it answers."""
        options = " ".join([f"-p {self.port} -h 127.0.0.1 -k {self.folder}", *_LOADED])
        log = str(self.folder / "log")
        self._control("-w", "-t", "240", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """End all connections, then the server."""
        self._control("-w", "-m", "fast", "stop")

    def restart(self) -> None:
        """Stop and start; the databases stay."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """End the server at once; it recovers when it is started again."""
        self._control("-w", "-m", "immediate", "stop")

    def _control(self, *arguments: str) -> None:
        self._call("pg_ctl", "-D", str(self.folder / "data"), *arguments)

    def _call(self, program: str, *arguments: str) -> None:
        programs = _programs()
        assert programs is not None
        command = [str(programs / program), *arguments]
        if os.geteuid() == 0:
            command = [*_as_other_user(), *command]
        # Not through pipes: the server would keep them open.
        with (self.folder / "calls").open("ab") as output:
            subprocess.run(
                command, cwd=self.folder, check=True, stdout=output, stderr=output, timeout=300
            )


@contextlib.contextmanager
def available_postgresql() -> Iterator[PostgreSQL]:
    """Run a server; skip the test, with the reason, where there can be none."""
    reason = missing_postgresql()
    if reason is not None:
        pytest.skip(reason)
    with postgresql() as server:
        yield server


@contextlib.contextmanager
def postgresql() -> Iterator[PostgreSQL]:
    """Run a server with an empty folder; several can run at once."""
    # Not below pytest's folders: another user has to reach it, and a socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="evalcore-pg-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "calls").touch()
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        with _starting_alone():
            server = PostgreSQL(folder, _free_ports(1)[0])
            options = ["-A", "trust", "-U", _USER, "-E", "UTF8", "--no-sync"]
            server._call("initdb", "-D", str(folder / "data"), *options)
            server.start()
        stack.callback(_stop, server)
        yield server


def _stop(server: PostgreSQL) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        server.kill()


def _as_other_user() -> list[str]:
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"]


def _programs() -> Path | None:
    """Return the folder of the newest server's programs."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    newest = folders[-1] if folders else None if on_path is None else Path(on_path)
    return None if newest is None else newest.resolve().parent


def databases() -> Iterator[tuple[str, str, Path]]:
    """Yield name, address and folder of a database of each kind that is installed here."""
    with contextlib.ExitStack() as stack:
        parent = stack.enter_context(tempfile.TemporaryDirectory(prefix="evalcore-bench-"))
        for name in ("SQLite", "PostgreSQL"):
            folder = Path(parent) / name
            folder.mkdir()
            address = str(folder / "evalcore.db")
            if name == "PostgreSQL":
                if missing_postgresql() is not None:
                    continue
                address = stack.enter_context(postgresql()).new_database()
            yield name, address, folder


@pytest.fixture(scope="session")
def shared_postgresql() -> Iterator[PostgreSQL]:
    """A server for all tests of one of pytest's processes."""
    with available_postgresql() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.extended)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database, of each kind that the service takes."""
    if request.param == "sqlite":
        return str(tmp_path / "evalcore.db")
    return str(request.getfixturevalue("shared_postgresql").new_database())
