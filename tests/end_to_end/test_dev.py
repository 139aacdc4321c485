"""`evalcore dev`: everything with one command, and nothing left of it afterwards."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.prefect_runs import write_suite
from tests.support.prefect_server import NewDatabase
from tests.support.processes import until
from tests.support.servers import free_port

# Several servers start one after another, which may take minutes on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.multiprocess, pytest.mark.timeout(900)]

BIN = Path(sys.executable).parent
EVALCORE = str(BIN / "evalcore")
_READY_S = 300.0
_STOPPED_S = 120.0


def environment(folder: Path) -> dict[str, str]:
    """A user's environment that names another server, another store and this test."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PREFECT_", "EVALCORE_", "AWS_"))
    }
    return kept | {
        "PREFECT_API_URL": "http://127.0.0.1:1/api",
        "PREFECT_HOME": str(folder / "home"),
        "DEV_TEST": str(folder),
    }


def processes(folder: Path) -> list[tuple[int, str]]:
    """Return the numbers and command lines of all processes that this test's dev has started."""
    found = []
    mark = f"DEV_TEST={folder}".encode()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and mark in (process / "environ").read_bytes().split(b"\0"):
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                found.append((int(process.name), line))
    return found


class Dev:
    """A running `evalcore dev`."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.log = folder / "dev.log"
        self.service_port = free_port()
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [EVALCORE, "dev", "--service-port", str(self.service_port), *arguments],
                cwd=folder,
                env=environment(folder),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self.log.read_text()

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.printed, self.process, seconds=_READY_S, why=self.log.read_text)

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a user does who follows what was printed."""
        return subprocess.run(
            ["sh", "-c", f". .evalcore/dev/env && {command}"],
            cwd=self.folder,
            env=environment(self.folder) | {"PATH": f"{BIN}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )


@pytest.fixture(scope="module")
def used_folder(
    tmp_path_factory: pytest.TempPathFactory, new_prefect_database: NewDatabase
) -> Callable[[], Path]:
    """Make folders that have had a dev before, which started slowly, and that have a suite."""

    def make() -> Path:
        folder = tmp_path_factory.mktemp("dev")
        new_prefect_database.copy(folder / ".evalcore" / "dev" / "prefect")
        write_suite(folder, "hello", name="tried")
        return folder

    return make


@contextlib.contextmanager
def dev(folder: Path, *arguments: str) -> Iterator[Dev]:
    running = Dev(folder, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.process.wait(_STOPPED_S)
            running.process.kill()


@pytest.mark.extended
def test_a_server_that_dies_ends_it_with_the_end_of_its_log(
    used_folder: Callable[[], Path],
) -> None:
    folder = used_folder()
    with dev(folder, "--port", str(free_port())) as running:
        running.wait_for("starting the service")
        (server,) = (number for number, line in processes(folder) if " server start " in line)
        os.kill(server, signal.SIGKILL)
        assert running.process.wait(_STOPPED_S) == 4
        assert "Prefect's server ended" in running.printed
        assert "server.log ends with" in running.printed
        assert processes(folder) == []


def test_a_request_to_terminate_while_it_starts_leaves_no_process(tmp_path: Path) -> None:
    with dev(tmp_path, "--port", str(free_port())) as running:
        running.wait_for("starting Prefect's server")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(_STOPPED_S) == 0, running.printed
        assert processes(tmp_path) == []
    assert "Traceback" not in running.printed


def refused(folder: Path, *arguments: str) -> str:
    ended = subprocess.run(
        [EVALCORE, "dev", *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert processes(folder) == []
    return ended.stderr


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = refused(tmp_path, "--port", str(port))
        of_service = refused(tmp_path, "--port", str(free_port()), "--service-port", str(port))
    assert f"port {port} is taken" in told
    assert "choose another with --port" in told
    assert "choose another with --service-port" in of_service
