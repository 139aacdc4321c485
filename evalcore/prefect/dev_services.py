"""What `evalcore dev` starts, in which order, and how each part finds the others."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evalcore.errors import UsageError
from evalcore.prefect.processes import HOST, Server, ServerError, port_is_free, start, stop_all
from evalcore.prefect.seaweedfs import BUCKET, LocalS3, find_weed, start_s3
from evalcore.settings import read_settings

FOLDER = Path(__file__).resolve().parent / "data"
POOL = "evalcore"
# The first start makes the database, and may have to compile Prefect's modules. On a busy machine
# a minute is too little for any of them; one that ends is noticed at once.
_READY_S = 180.0
_EVALCORE = "from evalcore.cli.main import main; main()"
# A worker waits for its flow runs.
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class DevPlan:
    """Where everything stands: `state` is dev's own folder; `s3_port` is None without S3."""

    folder: Path
    state: Path
    port: int
    service_port: int
    s3_port: int | None
    store: str | None

    @property
    def api(self) -> str:
        """The address of Prefect's API."""
        return f"http://{HOST}:{self.port}/api"

    @property
    def service(self) -> str:
        """The address of the service."""
        return f"http://{HOST}:{self.service_port}"

    def check_ports(self) -> None:
        """Raise `UsageError` if another program listens on a port, or SeaweedFS is missing."""
        ports = (
            ("--port", self.port),
            ("--service-port", self.service_port),
            ("--s3-port", self.s3_port),
        )
        for flag, port in ports:
            if port is not None and not port_is_free(port):
                raise UsageError(
                    f"port {port} is taken: another program listens there (`ss -ltnp 'sport = "
                    f":{port}'` shows which); choose another with {flag}"
                )
        if self.s3_port is not None:
            find_weed()


class Services:
    """The servers, in the order of their start; leaving the context stops all of them."""

    def __init__(self, plan: DevPlan, *, report: Callable[[str], None]) -> None:
        self.servers: list[Server] = []
        self._plan = plan
        self._report = report
        self._s3: LocalS3 | None = None

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *_: object) -> None:
        stop_all(self.servers, patience_s=_PATIENCE_S)

    def start(self) -> None:
        """Start everything and return when it is ready; raise `ServerError`."""
        plan = self._plan
        if plan.s3_port is not None:
            self._report(f"starting the S3 store on port {plan.s3_port}")
            self._s3 = start_s3(find_weed(), plan.state, plan.s3_port)
            self.servers.append(self._s3.server)
            self._s3.wait_until_ready()
        self._report(f"starting Prefect's server on port {plan.port}")
        arguments = ("server", "start", "--host", HOST, "--port", str(plan.port))
        server = self._start("Prefect's server", "server.log", arguments)
        server.wait_until_ready(f"{plan.api}/health", _READY_S)
        self._deploy()
        service = self._start_service()
        of_worker = ("worker", "start", "--pool", POOL, "--type", "process", "--name", "dev")
        worker = self._start("the worker", "worker.log", of_worker)
        service.wait_until_ready(f"{plan.service}/readyz", _READY_S)
        self._wait_for_worker(worker)
        self._write_environment()

    def _start_service(self) -> Server:
        plan = self._plan
        self._report(f"starting the service on port {plan.service_port}")
        database = f"sqlite:///{plan.state / 'service.db'}"
        arguments = ("--insecure", "--host", HOST, "--port", str(plan.service_port))
        command = (sys.executable, "-c", _EVALCORE, "serve", *arguments, "--database", database)
        return self._start_command("the service", "service.log", command)

    def _start(self, name: str, log: str, arguments: Sequence[str]) -> Server:
        return self._start_command(name, log, (sys.executable, "-m", "prefect", *arguments))

    def _start_command(self, name: str, log: str, command: Sequence[str]) -> Server:
        plan = self._plan
        server = start(
            name,
            command,
            environment=self._environment(),
            folder=plan.folder,
            log=plan.state / log,
        )
        self.servers.append(server)
        return server

    def _environment(self) -> dict[str, str]:
        """Return the environment of Prefect's processes: ours without other servers' settings."""
        import tomllib

        profiles = tomllib.loads((FOLDER / "profiles.toml").read_text("utf-8"))["profiles"]
        profile: dict[str, str] = profiles["dev"]
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("PREFECT_") or name.startswith("PREFECT_LOGGING_")
        }
        own = {
            "PREFECT_HOME": str(self._plan.state / "prefect"),
            "PREFECT_SERVER_UI_API_URL": self._plan.api,
            "DO_NOT_TRACK": "1",
            "PYTHONUNBUFFERED": "1",
        }
        return inherited | profile | own | dict(self._shared())

    def _shared(self) -> Mapping[str, str]:
        """Return what the worker and the user's shell need to know."""
        s3 = {} if self._s3 is None else self._s3.environment
        return {
            "PREFECT_API_URL": self._plan.api,
            "EVALCORE_STORE": self._store(),
            "EVALCORE_SERVICE": self._plan.service,
            **s3,
        }

    def _store(self) -> str:
        plan = self._plan
        if plan.s3_port is not None:
            return f"s3://{BUCKET}/runs"
        store = plan.store or read_settings(os.environ, plan.folder).store
        return store if "://" in store else str((plan.folder / store).resolve())

    def _deploy(self) -> None:
        ended = subprocess.run(
            [sys.executable, "-c", _EVALCORE, "deploy", "--pool", POOL],
            env=self._environment(),
            cwd=self._plan.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
        if ended.returncode != 0:
            raise ServerError(f"the deployments could not be registered: {ended.stderr}")
        for line in ended.stderr.splitlines():
            self._report(line)

    def _wait_for_worker(self, worker: Server) -> None:
        """Return once the server has heard of the worker; raise `ServerError`."""
        url = f"{self._plan.api}/work_pools/{POOL}/workers/filter"
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            worker.check()
            request = urllib.request.Request(  # noqa: S310  (our own server)
                url, data=b"{}", headers={"Content-Type": "application/json"}
            )
            with suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
                if any(reported["status"] == "ONLINE" for reported in json.load(answer)):
                    return
            time.sleep(0.2)
        raise ServerError(f"the worker does not report to the server; its log is {worker.log}")

    def _write_environment(self) -> None:
        path = self._plan.state / "env"
        path.touch(mode=0o600)
        lines = [f"export {name}={shlex.quote(text)}\n" for name, text in self._shared().items()]
        path.write_text("".join(lines), "utf-8")

    def welcome(self) -> str:
        """Return the addresses, and what to try."""
        plan = self._plan
        at = "" if self._s3 is None else f" at {self._s3.url}"
        state = os.path.relpath(plan.state, plan.folder)
        return "\n".join(
            (
                "",
                f"Prefect   http://{HOST}:{plan.port}",
                f"service   {plan.service}/docs",
                f"worker    pool {POOL}, in {plan.folder}",
                f"store     {self._store()}{at}",
                f"logs      {state}/*.log",
                "",
                *self._first_steps(f"{state}/env"),
                "",
                "Ctrl-C stops everything.",
            )
        )

    def _first_steps(self, environment: str) -> list[str]:
        """Return commands that work here: for a suite that the worker takes, if there is one."""
        from evalcore.prefect.suites import USUAL_PATTERNS, present_suites, refused_suites

        folder = self._plan.folder
        patterns = [*USUAL_PATTERNS, "examples/support-answers/*.eval.yaml"]
        suites = present_suites(patterns, folder)
        refused = refused_suites(suites, folder, self._environment())
        return first_steps(environment, folder, suites, refused)


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
