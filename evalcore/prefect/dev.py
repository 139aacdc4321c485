"""`evalcore dev`: Prefect's server, a worker and the service on this machine, until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from evalcore.errors import ExitCode, StoreError, UsageError

_POOL: Final = "evalcore"
_PROFILES: Final = Path(__file__).resolve().parent / "data" / "profiles.toml"
_EVALCORE: Final = ("-m", "evalcore")
_HOST: Final = "127.0.0.1"
_LOOK_S: Final = 0.5
_ANSWER_S: Final = 5.0
# The first start makes the database, and may have to compile Prefect's modules.
_READY_S: Final = 180.0
# A worker waits for its flow runs.
_PATIENCE_S: Final = 15.0
_LAST_LINES: Final = 15


@click.command()
@click.option("--port", default=4200, show_default=True, help="Port of Prefect's server and UI.")
@click.option("--service-port", default=8321, show_default=True, help="Port of the service.")
@click.option("--store", metavar="ADDRESS", help="Where runs are stored.")
def dev(port: int, service_port: int, store: str | None) -> int:
    """Start Prefect's server, a worker and the service here; Ctrl-C stops everything.

    Registers the deployments as `evalcore deploy` does, and serves saved evals as
    `evalcore serve --insecure` does. What it keeps (databases, logs) stands in .evalcore/dev of the
    current folder.
    """
    if port == service_port:
        raise UsageError(f"--port and --service-port are both {port}: they need a port each")
    for flag, number in (("--port", port), ("--service-port", service_port)):
        if not _is_free(number):
            raise UsageError(
                f"port {number} is taken: another program listens there (`ss -ltnp 'sport = "
                f":{number}'` shows which); choose another with {flag}"
            )
    installation = _Installation(Path.cwd(), port, service_port, store)
    with _alone(installation.state):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        try:
            installation.start()
            _print(installation.welcome())
            installation.watch()
        except KeyboardInterrupt:
            _print("stopping")
        finally:
            # A second Ctrl-C must not leave processes behind.
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            for server in reversed(installation.servers):
                server.stop()
    _print("stopped; `evalcore dev` goes on where this was")
    return ExitCode.PASS


def _is_free(port: int) -> bool:
    """Whether a server may listen on a port of this machine, as servers do it (with reuse)."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((_HOST, port))
        with socket.socket() as caller:  # one that listens on all addresses lets others bind
            caller.settimeout(1.0)
            return caller.connect_ex((_HOST, port)) != 0
    return False


@contextlib.contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Keep a second `evalcore dev` out of the folder; raise `UsageError` if one is there."""
    from filelock import FileLock, Timeout

    state.mkdir(parents=True, exist_ok=True)
    (state / ".gitignore").write_text("*\n", "utf-8")
    path = state / "lock"
    try:
        with FileLock(path, blocking=False, fallback_to_soft=False):
            path.write_text(f"{os.getpid()}\n", "utf-8")
            yield
    except Timeout:
        other = path.read_text("utf-8").strip()
        message = f"`evalcore dev` already runs in this folder (process {other})"
        raise UsageError(message) from None


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

    def __init__(self, folder: Path, port: int, service_port: int, store: str | None) -> None:
        from evalcore.settings import read_settings

        self.state = folder / ".evalcore" / "dev"
        self.servers: list[_Server] = []
        self._folder, self._port, self._service_port = folder, port, service_port
        self._api = f"http://{_HOST}:{port}/api"
        store = store or read_settings(os.environ, folder).store
        # What the user's shell needs to know, too.
        self._shared = {
            "PREFECT_API_URL": self._api,
            "EVALCORE_STORE": store if "://" in store else str((folder / store).resolve()),
            "EVALCORE_SERVICE": f"http://{_HOST}:{service_port}",
        }

    def start(self) -> None:
        """Start everything and return when it is ready; raise `StoreError`."""
        prefect = ("-m", "prefect")
        listen = ("--host", _HOST, "--port")
        _print(f"starting Prefect's server on port {self._port}")
        command = (*prefect, "server", "start", *listen, str(self._port))
        self._start("Prefect's server", "server", command).wait_until_ready(f"{self._api}/health")
        deployed = subprocess.run(
            [sys.executable, *_EVALCORE, "deploy", "--pool", _POOL],
            env=self._environment(),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
            start_new_session=True,
        )
        if deployed.returncode != 0:
            raise StoreError("the deployments could not be registered")
        _print(f"starting the service on port {self._service_port}")
        command = (*_EVALCORE, "serve", "--insecure", *listen, str(self._service_port))
        database = f"sqlite:///{self.state / 'service.db'}"
        service = self._start("the service", "service", (*command, "--database", database))
        command = (*prefect, "worker", "start", "--pool", _POOL, "--type", "process")
        self._start("the worker", "worker", (*command, "--name", "dev"))
        service.wait_until_ready(f"{self._shared['EVALCORE_SERVICE']}/readyz")
        environment = self.state / "env"
        environment.touch(mode=0o600)
        lines = [f"export {name}={shlex.quote(text)}\n" for name, text in self._shared.items()]
        environment.write_text("".join(lines), "utf-8")

    def _start(self, name: str, log: str, arguments: Sequence[str]) -> _Server:
        """Start a server: it does not hear the terminal's Ctrl-C, and dies with this process."""
        from evalcore.trust.processes import MARK_NAME, watchdog

        path = self.state / f"{log}.log"
        with path.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=self._environment() | {MARK_NAME: watchdog().mark},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        watchdog().began(process.pid)
        server = _Server(name, process, path)
        self.servers.append(server)
        return server

    def _environment(self) -> dict[str, str]:
        """Return the environment of our processes: the user's without other servers' settings."""
        profile: dict[str, str] = tomllib.loads(_PROFILES.read_text("utf-8"))["profiles"]["dev"]
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
        return inherited | profile | own | self._shared

    def watch(self) -> None:
        """Return never: show how flow runs end; raise `StoreError` once a server ends."""
        since, told = datetime.now(UTC).isoformat(), set()
        query = {
            "flow_runs": {"end_time": {"after_": since}},
            "sort": "END_TIME_DESC",
            "limit": 100,
        }
        request = urllib.request.Request(  # noqa: S310  (our own server)
            f"{self._api}/flow_runs/filter",
            data=json.dumps(query).encode(),
            headers={"Content-Type": "application/json"},
        )
        while True:
            for server in self.servers:
                server.check()
            with (
                contextlib.suppress(OSError),  # asked again soon
                urllib.request.urlopen(request, timeout=_ANSWER_S) as answer,  # noqa: S310
            ):
                for flow_run in reversed(json.load(answer)):
                    # A flow run that is retried ends again; one that is cancelled is told so by its
                    # process and by its worker.
                    end = flow_run["id"], flow_run["run_count"], flow_run["state"]["name"]
                    if end not in told:
                        told.add(end)
                        _print(ending(flow_run))
            time.sleep(_LOOK_S)

    def welcome(self) -> str:
        """Return the addresses, and what to try."""
        from evalcore.prefect.parameters import USUAL_PATTERNS, present_suites, refused_suites

        folder, state = self._folder, os.path.relpath(self.state, self._folder)
        patterns = [*USUAL_PATTERNS, "examples/support-answers/*.eval.yaml"]
        suites = present_suites(patterns, folder)
        refused = refused_suites(suites, folder, self._environment())
        return "\n".join(
            (
                "",
                f"Prefect   {self._api.removesuffix('/api')}",
                f"service   {self._shared['EVALCORE_SERVICE']}/docs",
                f"worker    pool {_POOL}, in {folder}",
                f"store     {self._shared['EVALCORE_STORE']}",
                f"logs      {state}/*.log",
                "",
                *first_steps(f"{state}/env", folder, suites, refused),
                "",
                "Ctrl-C stops everything.",
            )
        )


def first_steps(
    environment: str, folder: Path, suites: Sequence[str], refused: Mapping[str, str]
) -> list[str]:
    """Return commands to try, of a suite that the worker takes; without one, why there is none."""
    suite = next((name for name in suites if name not in refused), None)
    tried = [f"  . {environment}", f"  {_command('evalcore')} runs list"]
    if suite is not None:
        run = f"{_command('prefect')} deployment run evaluate/on-demand"
        tried.insert(1, f"  {run} --watch --param {shlex.quote(f'suite={suite}')}")
        reasons = []
    elif refused:
        listed = [f"  {name}: {reason}" for name, reason in refused.items()]
        reasons = ["The worker refuses every suite here:", *listed, ""]
    else:
        reasons = [f"There is no *.eval.yaml in {folder}; `evalcore init` writes one.", ""]
    return [*reasons, "Try, in another shell:", *tried]


def _command(name: str) -> str:
    """Return how a program of this environment is called in a shell."""
    own = Path(sys.executable).with_name(name)
    if own.exists() and shutil.which(name) != str(own):
        return shlex.quote(str(own))
    return name


def ending(flow_run: Mapping[str, Any]) -> str:
    """Return in one line how a flow run of the server's answer has ended."""
    state = flow_run["state"]
    message = f": {state['message']}" if state.get("message") else ""
    return f"{flow_run['name']} - Finished in state {state['name']}{message}"


def _print(text: str) -> None:
    from evalcore.trust.text import sanitize_terminal

    click.echo(sanitize_terminal(text))
    sys.stdout.flush()
