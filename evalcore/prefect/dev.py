"""`evalcore dev`: Prefect's server, a worker and the service on this machine, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from evalcore.errors import ExitCode, StoreError, UsageError

_HOST: Final = "127.0.0.1"
_LISTEN: Final = ("--host", _HOST, "--port")
_LOOK_S: Final = 0.5
_ANSWER_S: Final = 5.0
# The first start makes the database, and may have to compile Prefect's modules.
_READY_S: Final = 180.0
# A worker waits for its flow runs.
_PATIENCE_S: Final = 15.0
_LAST_LINES: Final = 15
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option("--port", default=4200, show_default=True, help="Port of Prefect's server and UI.")
@click.option("--service-port", default=8321, show_default=True, help="Port of the service.")
def dev(port: int, service_port: int) -> int:
    """Start Prefect's server, a worker and the service here; Ctrl-C stops everything.

    Registers the deployments as `evalcore deploy` does, and serves saved evals as
    `evalcore serve --insecure` does. What it keeps (databases, logs) stands in .evalcore/dev of the
    current folder.
    """
    for flag, number in (("--port", port), ("--service-port", service_port)):
        with socket.socket() as caller:
            if caller.connect_ex((_HOST, number)) == 0:
                raise UsageError(
                    f"port {number} is taken: another program listens there (`ss -ltnp 'sport = "
                    f":{number}'` shows which); choose another with {flag}"
                )
    installation = _Installation(Path.cwd(), port, service_port)
    for signalled in _SIGNALS:
        signal.signal(signalled, signal.default_int_handler)
    try:
        installation.start()
        _print(installation.welcome())
        while True:
            for server in installation.servers:
                server.check()
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        _print("stopping")
    finally:
        # A second Ctrl-C must not leave processes behind.
        for signalled in _SIGNALS:
            signal.signal(signalled, signal.SIG_IGN)
        for server in reversed(installation.servers):
            server.stop()
    _print("stopped; `evalcore dev` goes on where this was")
    return ExitCode.PASS


@dataclass(frozen=True)
class _Server:
    """A process that leads a group of its own, and where it logs to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise `StoreError` if the process has ended."""
        if (code := self.process.poll()) is not None:
            lines = self.log.read_text("utf-8", errors="replace").splitlines()[-_LAST_LINES:]
            tail = "\n".join([f"{self.log} ends with", *lines])
            raise StoreError(f"{self.name} ended with code {code}; {tail}")

    def wait_until_ready(self, url: str) -> None:
        """Return once `url` answers 200; raise `StoreError` if it does not in time."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            self.check()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url, timeout=_ANSWER_S).close()  # noqa: S310  (our own)
                return
            time.sleep(_LOOK_S)
        raise StoreError(f"{self.name} does not answer after {_READY_S:.0f} s; see {self.log}")

    def stop(self) -> None:
        """End the process and its group: asked first, killed when patience is at its end."""
        # What the leader has left behind, or the leader itself, is killed.
        for number, wait_s in ((signal.SIGTERM, _PATIENCE_S), (signal.SIGKILL, None)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(wait_s)


class _Installation:
    """What runs, in the order of its start, and how each part finds the others."""

    def __init__(self, folder: Path, port: int, service_port: int) -> None:
        from evalcore.prefect.server import read_profile
        from evalcore.settings import read_settings

        self.state = folder / ".evalcore" / "dev"
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / ".gitignore").write_text("*\n", "utf-8")
        self.servers: list[_Server] = []
        self._folder, self._port, self._service_port = folder, port, service_port
        self._api = f"http://{_HOST}:{port}/api"
        store = read_settings(os.environ, folder).store
        # What the user's shell needs to know, too.
        self._shared = {
            "PREFECT_API_URL": self._api,
            "EVALCORE_STORE": store if "://" in store else str((folder / store).resolve()),
            "EVALCORE_SERVICE": f"http://{_HOST}:{service_port}",
        }
        # The user's without other servers' settings.
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PREFECT_") or name.startswith("PREFECT_LOGGING_")
        }
        own = {
            "PREFECT_HOME": str(self.state / "prefect"),
            "PREFECT_SERVER_UI_API_URL": self._api,
            "DO_NOT_TRACK": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self._environment = inherited | read_profile() | own | self._shared

    def start(self) -> None:
        """Start everything and return when it is ready; raise `StoreError`."""
        _print(f"starting Prefect's server on port {self._port}")
        command = ("prefect", "server", "start", *_LISTEN, str(self._port))
        self._start("Prefect's server", "server", command).wait_until_ready(f"{self._api}/health")
        deployed = subprocess.run(
            [sys.executable, "-m", "evalcore", "deploy"],
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
            start_new_session=True,
        )
        if deployed.returncode != 0:
            raise StoreError("the deployments could not be registered")
        _print(f"starting the service on port {self._service_port}")
        command = ("evalcore", "serve", "--insecure", *_LISTEN, str(self._service_port))
        database = f"sqlite:///{self.state / 'service.db'}"
        service = self._start("the service", "service", (*command, "--database", database))
        worker = ("prefect", "worker", "start", "--pool", "evalcore", "--name", "dev")
        self._start("the worker", "worker", worker)
        service.wait_until_ready(f"{self._shared['EVALCORE_SERVICE']}/readyz")
        environment = self.state / "env"
        environment.touch(mode=0o600)
        lines = [f"export {name}={shlex.quote(text)}\n" for name, text in self._shared.items()]
        # The programs of this environment.
        lines.append(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH\n")
        environment.write_text("".join(lines), "utf-8")

    def _start(self, name: str, log: str, command: Sequence[str]) -> _Server:
        """Start a server: it does not hear the terminal's Ctrl-C, and dies with this process."""
        from evalcore.trust.processes import watchdog

        path, heard = self.state / f"{log}.log", list[int]()
        # A signal in the middle would leave a process that nobody knows.
        for signalled in _SIGNALS:
            signal.signal(signalled, lambda number, _: heard.append(number))
        with path.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        watchdog().began(process.pid)
        server = _Server(name, process, path)
        self.servers.append(server)
        for signalled in _SIGNALS:
            signal.signal(signalled, signal.default_int_handler)
        if heard:
            raise KeyboardInterrupt
        return server

    def welcome(self) -> str:
        """Return the addresses, and commands to try."""
        from evalcore.prefect.parameters import find_suites

        state = os.path.relpath(self.state, self._folder)
        patterns = ("*.eval.yaml", "evals/**/*.eval.yaml", "**/*.eval.yaml")
        suites = (
            name for name, is_there in find_suites(patterns, self._folder).items() if is_there
        )
        tried = "evalcore init       # writes a suite: there is none here"
        if (suite := next(suites, None)) is not None:
            run = "prefect deployment run evaluate/on-demand --watch --param"
            tried = f"{run} {shlex.quote(f'suite={suite}')}"
        return "\n".join(
            (
                "",
                f"Prefect   {self._api.removesuffix('/api')}",
                f"service   {self._shared['EVALCORE_SERVICE']}/docs",
                f"worker    pool evalcore, in {self._folder}",
                f"store     {self._shared['EVALCORE_STORE']}",
                f"logs      {state}/*.log",
                "",
                "Try, in another shell:",
                f"  . {state}/env",
                f"  {tried}",
                "  evalcore runs list",
                "",
                "Ctrl-C stops everything.",
            )
        )


def _print(text: str) -> None:
    from evalcore.trust.text import sanitize_terminal

    click.echo(sanitize_terminal(text))
    sys.stdout.flush()
