"""`evalcore dev`: Prefect's server, a worker, the service and a store here, until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from evalcore.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from evalcore.prefect.dev_servers import LocalS3, Server

_POOL: Final = "evalcore"
_PROFILES: Final = Path(__file__).resolve().parent / "data" / "profiles.toml"
_EVALCORE: Final = "from evalcore.cli.main import main; main()"
_HOST: Final = "127.0.0.1"
_LOOK_EVERY_S: Final = 0.7
_ANSWER_S: Final = 5.0
# A worker waits for its flow runs.
_PATIENCE_S: Final = 15.0


@click.command()
@click.option("--port", default=4200, show_default=True, help="Port of Prefect's server and UI.")
@click.option("--service-port", default=8321, show_default=True, help="Port of the service.")
@click.option("--s3", is_flag=True, help="Store runs in a local S3 store instead of a folder.")
@click.option("--s3-port", default=8333, show_default=True, help="Port of the S3 store.")
@click.option("--store", metavar="ADDRESS", help="Where runs are stored.")
def dev(port: int, service_port: int, s3: bool, s3_port: int, store: str | None) -> int:
    """Start Prefect's server, a worker and the service here; Ctrl-C stops everything.

    Registers the deployments as `evalcore deploy` does, and serves saved evals as
    `evalcore serve --insecure` does. What it keeps (databases, logs, the S3 store's data) stands
    in .evalcore/dev of the current folder.
    """
    if s3 and store:
        raise UsageError("--s3 is a store of its own: give either --s3 or --store")
    ports = {"--port": port, "--service-port": service_port} | (
        {"--s3-port": s3_port} if s3 else {}
    )
    _check_ports(ports)
    installation = _Installation(Path.cwd(), ports, store)
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
                server.stop(_PATIENCE_S)
    _print("stopped; `evalcore dev` goes on where this was")
    return ExitCode.PASS


def _check_ports(ports: Mapping[str, int]) -> None:
    """Raise `UsageError` for two equal ports, one that is taken, or SeaweedFS missing."""
    from evalcore.prefect.dev_servers import find_weed, port_is_free

    flags: dict[int, str] = {}
    for flag, port in ports.items():
        if port in flags:
            raise UsageError(f"{flags[port]} and {flag} are both {port}: they need a port each")
        flags[port] = flag
        if not port_is_free(port):
            raise UsageError(
                f"port {port} is taken: another program listens there (`ss -ltnp 'sport = "
                f":{port}'` shows which); choose another with {flag}"
            )
    if "--s3-port" in ports:
        find_weed()


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


class _Installation:
    """What runs, in the order of its start, and how each part finds the others."""

    def __init__(self, folder: Path, ports: Mapping[str, int], store: str | None) -> None:
        self.state = folder / ".evalcore" / "dev"
        self.servers: list[Server] = []
        self._folder = folder
        self._ports = ports
        self._store = store
        self._s3: LocalS3 | None = None
        self._api = f"http://{_HOST}:{ports['--port']}/api"
        self._service = f"http://{_HOST}:{ports['--service-port']}"

    def start(self) -> None:
        """Start everything and return when it is ready; raise `ServerError`."""
        from evalcore.prefect.dev_servers import start_s3

        if (s3_port := self._ports.get("--s3-port")) is not None:
            _print(f"starting the S3 store on port {s3_port}")
            self._s3 = start_s3(self.state, s3_port)
            self.servers.append(self._s3.server)
            self._s3.wait_until_ready()
        port, prefect = str(self._ports["--port"]), ("-m", "prefect")
        _print(f"starting Prefect's server on port {port}")
        command = (*prefect, "server", "start", "--host", _HOST, "--port", port)
        self._start("Prefect's server", "server.log", command).wait_until_ready(
            f"{self._api}/health"
        )
        self._deploy()
        port = str(self._ports["--service-port"])
        _print(f"starting the service on port {port}")
        database = f"sqlite:///{self.state / 'service.db'}"
        command = ("-c", _EVALCORE, "serve", "--insecure", "--host", _HOST, "--port", port)
        service = self._start("the service", "service.log", (*command, "--database", database))
        command = (*prefect, "worker", "start", "--pool", _POOL, "--type", "process")
        worker = self._start("the worker", "worker.log", (*command, "--name", "dev"))
        service.wait_until_ready(f"{self._service}/readyz")
        self._wait_for_worker(worker)
        environment = self.state / "env"
        environment.touch(mode=0o600)
        lines = [f"export {name}={shlex.quote(text)}\n" for name, text in self._shared().items()]
        environment.write_text("".join(lines), "utf-8")

    def _start(self, name: str, log: str, arguments: Sequence[str]) -> Server:
        from evalcore.prefect.dev_servers import start

        server = start(
            name,
            (sys.executable, *arguments),
            environment=self._environment(),
            folder=self._folder,
            log=self.state / log,
        )
        self.servers.append(server)
        return server

    def _environment(self) -> dict[str, str]:
        """Return the environment of our processes: the user's without other servers' settings."""
        import tomllib

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
        return inherited | profile | own | self._shared()

    def _shared(self) -> dict[str, str]:
        """Return what the worker and the user's shell need to know."""
        return {
            "PREFECT_API_URL": self._api,
            "EVALCORE_STORE": self._store_address(),
            "EVALCORE_SERVICE": self._service,
            **({} if self._s3 is None else self._s3.environment),
        }

    def _store_address(self) -> str:
        from evalcore.prefect.dev_servers import BUCKET
        from evalcore.settings import read_settings

        if self._s3 is not None:
            return f"s3://{BUCKET}/runs"
        store = self._store or read_settings(os.environ, self._folder).store
        return store if "://" in store else str((self._folder / store).resolve())

    def _deploy(self) -> None:
        from evalcore.prefect.dev_servers import ServerError

        ended = subprocess.run(
            [sys.executable, "-c", _EVALCORE, "deploy", "--pool", _POOL],
            env=self._environment(),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        if ended.returncode != 0:
            raise ServerError(f"the deployments could not be registered: {ended.stderr}")
        for line in ended.stderr.splitlines():
            _print(line)

    def _wait_for_worker(self, worker: Server) -> None:
        """Return once the server has heard of the worker; raise `ServerError`."""
        from evalcore.prefect.dev_servers import READY_S, ServerError

        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            worker.check()
            with contextlib.suppress(OSError):
                workers = _ask(f"{self._api}/work_pools/{_POOL}/workers/filter", {})
                if any(reported["status"] == "ONLINE" for reported in workers):
                    return
            time.sleep(_LOOK_EVERY_S)
        raise ServerError(f"the worker does not report to the server; its log is {worker.log}")

    def watch(self) -> None:
        """Return never: show how flow runs end; raise `ServerError` once a server ends."""
        since, told = datetime.now(UTC).isoformat(), set()
        query = {
            "flow_runs": {"end_time": {"after_": since}},
            "sort": "END_TIME_DESC",
            "limit": 100,
        }
        while True:
            for server in self.servers:
                server.check()
            with contextlib.suppress(OSError):  # asked again soon
                for flow_run in reversed(_ask(f"{self._api}/flow_runs/filter", query)):
                    # A flow run that is retried ends again; one that is cancelled is told so by its
                    # process and by its worker.
                    end = flow_run["id"], flow_run["run_count"], flow_run["state"]["name"]
                    if end not in told:
                        told.add(end)
                        _print(ending(flow_run))
            time.sleep(_LOOK_EVERY_S)

    def welcome(self) -> str:
        """Return the addresses, and what to try."""
        from evalcore.prefect.suites import USUAL_PATTERNS, present_suites, refused_suites

        folder, state = self._folder, os.path.relpath(self.state, self._folder)
        patterns = [*USUAL_PATTERNS, "examples/support-answers/*.eval.yaml"]
        suites = present_suites(patterns, folder)
        refused = refused_suites(suites, folder, self._environment())
        at = "" if self._s3 is None else f" at {self._s3.url}"
        return "\n".join(
            (
                "",
                f"Prefect   {self._api.removesuffix('/api')}",
                f"service   {self._service}/docs",
                f"worker    pool {_POOL}, in {folder}",
                f"store     {self._store_address()}{at}",
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


def _ask(url: str, query: Mapping[str, Any]) -> Any:
    """Return the answer of Prefect's server to a query; raise `OSError` without one."""
    import urllib.request

    request = urllib.request.Request(  # noqa: S310  (our own server)
        url, data=json.dumps(query).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
        return json.load(answer)


def _print(text: str) -> None:
    from evalcore.trust.text import sanitize_terminal

    click.echo(sanitize_terminal(text))
    sys.stdout.flush()
