"""`evalcore dev`: Prefect's server, a worker, the service and a store here, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from evalcore.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from evalcore.prefect.flow_run_ends import EndedFlowRuns
    from evalcore.prefect.processes import Server

_LOOK_EVERY_S = 0.7


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
    from evalcore.prefect.dev_services import DevPlan, Services
    from evalcore.prefect.flow_run_ends import EndedFlowRuns

    if s3 and store:
        raise UsageError("--s3 is a store of its own: give either --s3 or --store")
    _check_ports_differ({"--port": port, "--service-port": service_port, "--s3-port": s3_port}, s3)
    folder = Path.cwd()
    state = folder / ".evalcore" / "dev"
    plan = DevPlan(folder, state, port, service_port, s3_port if s3 else None, store)
    plan.check_ports()
    with _alone(state), Services(plan, report=_print) as services:
        try:
            with _stop_signals():
                services.start()
                _print(services.welcome())
                _watch(services.servers, EndedFlowRuns(plan.api))
        except KeyboardInterrupt:
            _print("stopping")
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _print("stopped; `evalcore dev` goes on where this was")
    return ExitCode.PASS


def _check_ports_differ(ports: dict[str, int], with_s3: bool) -> None:
    """Raise `UsageError` for two equal ports; that of S3 counts only with S3."""
    flags: dict[int, str] = {}
    for flag, port in ports.items():
        if flag == "--s3-port" and not with_s3:
            continue
        if port in flags:
            raise UsageError(f"{flags[port]} and {flag} are both {port}: they need a port each")
        flags[port] = flag


def _watch(servers: list[Server], ended: EndedFlowRuns) -> None:
    """Return never: show how flow runs end; raise `ServerError` once a server ends."""
    while True:
        for server in servers:
            server.check()
        with contextlib.suppress(OSError):  # asked again soon
            for line in ended.new_lines():
                _print(line)
        time.sleep(_LOOK_EVERY_S)


def _print(text: str) -> None:
    from evalcore.trust.text import sanitize_terminal

    click.echo(sanitize_terminal(text))
    sys.stdout.flush()


@contextlib.contextmanager
def _stop_signals() -> Iterator[None]:
    """Make SIGTERM and a closed terminal the same as Ctrl-C."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    except BaseException:
        # A second Ctrl-C must not leave processes behind.
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise
    for number, handler in before.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Keep a second `evalcore dev` out of the folder; raise `UsageError` if one is there."""
    from filelock import FileLock, Timeout

    state.mkdir(parents=True, exist_ok=True)
    (state / ".gitignore").write_text("*\n", "utf-8")
    path = state / "lock"
    lock = FileLock(path, blocking=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        other = path.read_text("utf-8").strip()
        message = f"`evalcore dev` already runs in this folder (process {other})"
        raise UsageError(message) from None
    try:
        path.write_text(f"{os.getpid()}\n", "utf-8")
        yield
    finally:
        lock.release()
