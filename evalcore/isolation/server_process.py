"""The fork server as the engine sees it: started once, asked for workers, heard until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from evalcore.isolation.fork_server import KILLED, kill_group
from evalcore.isolation.frames import frame
from evalcore.trust.plan_keys import PLAN_KEY, RUN_KEY
from evalcore.trust.process_privacy import hide_process
from evalcore.trust.watchdog import MARK_NAME, watchdog

_PROGRAM: Final = Path(__file__).with_name("fork_server.py")
# What an interpreter and the loader of libraries read before any code can set it.
_AT_START: Final = ("PATH", "HOME", "LANG", "TMPDIR", "TZ", "SYSTEMROOT")
_PREFIXES: Final = ("LC_", "PYTHON", "LD_", "DYLD_", "MALLOC_", "GLIBC_")
# What only the engine may read.
_WITHHELD: Final = frozenset({PLAN_KEY, RUN_KEY})
_LONGEST_SHOWN: Final = 4 << 20


class ServerProcess:
    """One fork server, in the event loop that `start` was called in."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._forked: deque[asyncio.Future[int]] = deque()
        self._ended: dict[int, asyncio.Future[int | None]] = {}
        self._shown_characters = 0
        self.alive = True
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, preload: Sequence[str], memory_limit: int | None) -> ServerProcess:
        """Start a server whose workers have the modules `preload` at hand."""
        ours, its = socket.socketpair()
        env = {
            name: value
            for name, value in os.environ.items()
            if name in _AT_START or name.startswith(_PREFIXES)
        }
        env[MARK_NAME] = watchdog().mark
        hide_process()
        process = subprocess.Popen(
            [sys.executable, "-u", "-P", str(_PROGRAM)],
            stdin=its.fileno(),
            stdout=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )
        its.close()
        watchdog().began(process.pid)
        config = {
            "path": list(sys.path),
            "preload": list(preload),
            "memory_limit": memory_limit,
            "environment": {**_environment(os.environ), MARK_NAME: watchdog().mark},
        }
        ours.sendall(frame(pickle.dumps(config)))
        ours.setblocking(False)
        return cls(process, ours)

    async def fork(self, connection: socket.socket) -> int:
        """Return the process id of a new worker that talks over this socket; raise `OSError`."""
        if not self.alive:
            raise ConnectionResetError("the server of worker processes has ended")
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._forked.append(answer)
        # One byte always fits: the server reads each at once.
        socket.send_fds(self._control, [b"F"], [connection.fileno()])
        pid = await answer
        watchdog().began(pid)
        return pid

    async def exit_code(self, pid: int, timeout_s: float) -> int | None:
        """Return how a worker ended, negative for a signal; None if that is not to be known."""
        ended = self._ended.get(pid)
        if ended is None:
            return None
        try:
            return await asyncio.wait_for(asyncio.shield(ended), timeout_s)
        except TimeoutError:
            return None

    def forget(self, pid: int) -> None:
        """Forget a worker whose end is no longer awaited."""
        self._ended.pop(pid, None)

    def close(self) -> None:
        """End the server, which kills its workers."""
        self.alive = False
        self._reader.cancel()
        self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2)
        kill_group(self._process.pid)
        self._process.wait()
        watchdog().ended(self._process.pid)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        buffer = b""
        try:
            while data := await loop.sock_recv(self._control, 1 << 16):
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        except (OSError, ValueError):
            pass
        finally:
            self.alive = False
            lost = ConnectionResetError("the server of worker processes has ended")
            for answer in self._forked:
                if not answer.done():
                    answer.set_exception(lost)
            for ended in self._ended.values():
                if not ended.done():
                    ended.set_result(None)

    def _take(self, message: Mapping[str, Any]) -> None:
        if "forked" in message:
            loop = asyncio.get_running_loop()
            self._ended[message["forked"]] = loop.create_future()
            answer = self._forked.popleft()
            if not answer.done():
                answer.set_result(message["forked"])
        elif "refused" in message:
            answer = self._forked.popleft()
            if not answer.done():
                answer.set_exception(OSError(message["refused"]))
        elif "ended" in message:
            watchdog().ended(message["ended"])
            ended = self._ended.get(message["ended"])
            if ended is not None and not ended.done():
                ended.set_result(message["code"])
        elif "text" in message:
            self._show(message["text"], cut=message["cut"])

    def _show(self, text: str, *, cut: bool) -> None:
        """Show what a worker wrote on standard error; standard output is the report's."""
        from evalcore.trust.text import sanitize_terminal

        room = _LONGEST_SHOWN - self._shown_characters
        if room <= 0:
            return
        self._shown_characters += len(text)
        note = "\n… a worker process wrote more; the rest is dropped\n"
        if cut or len(text) > room:
            text = text[:room] + note
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(sanitize_terminal(text))
            sys.stderr.flush()


def ended_how(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is None:
        return "its worker process ended"
    if code == KILLED:
        code = -signal.SIGKILL
    if code >= 0:
        return f"its worker process ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"its worker process was killed by {name}"


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _WITHHELD}
