"""Starts servers as processes of their own, and ends them with everything that they started."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evalcore.errors import StoreError

HOST = "127.0.0.1"
_LAST_LINES = 15
_LOOK_EVERY_S = 0.1


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

    def wait_until_ready(self, url: str, timeout_s: float) -> None:
        """Return once `url` answers 200; raise `ServerError` if it does not in time."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.check()
            with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  (our own)
                if answer.status == 200:
                    return
            time.sleep(_LOOK_EVERY_S)
        raise ServerError(
            f"{self.name} does not answer after {timeout_s:.0f} s; {self._log_tail()}"
        )

    def stop(self, patience_s: float) -> None:
        """End the process and its group: asked first, killed when patience is at its end."""
        _signal_group(self.process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(patience_s)
        # What the leader has left behind, or the leader itself.
        _signal_group(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _log_tail(self) -> str:
        lines = self.log.read_text("utf-8", errors="replace").splitlines()[-_LAST_LINES:]
        return "\n".join([f"{self.log} ends with", *lines])


def start(
    name: str, command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path
) -> Server:
    """Start a server in `folder`; it does not hear the terminal's Ctrl-C, and dies with us."""
    words = list(command)
    if shutil.which("setpriv"):
        words = ["setpriv", "--pdeathsig", "KILL", "--", *words]
    with log.open("wb") as output:
        process = subprocess.Popen(
            words,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    return Server(name, process, log)


def stop_all(servers: Sequence[Server], *, patience_s: float) -> None:
    """Stop servers, the last one first."""
    for server in reversed(servers):
        server.stop(patience_s)


def port_is_free(port: int) -> bool:
    """Whether a server may listen on a port of this machine, as servers do it (with reuse)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    with socket.socket() as caller:  # one that listens on all addresses lets others bind
        caller.settimeout(1.0)
        return caller.connect_ex((HOST, port)) != 0


def _signal_group(leader: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
