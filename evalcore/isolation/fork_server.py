"""Starts worker processes by forking itself; a program, started by `isolation.server_process`.

Standard input is a socket to the engine. It brings the configuration, then a byte with a file
descriptor for each worker that is to be started. Standard output of the workers comes back over
it, bounded, and how each worker ended. Suites' code is never imported here: each worker starts
from the same clean state. When the socket ends, every worker is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pickle
import resource
import selectors
import signal
import socket
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

# Of what a worker writes, so much is shown; the rest is read and dropped.
SHOWN_BYTES: Final = 256 << 10
_READ_BYTES: Final = 1 << 16
_PIPE_BYTES: Final = 1 << 20
# A worker over its limit is read at this pace: enough for a talkative program, and no more than
# a few percent of a core.
_DROP_EVERY_S: Final = 0.005
_F_SETPIPE_SZ: Final = 1031
# The exit code of a worker that was killed, as a shell has it.
KILLED: Final = 128 + signal.SIGKILL
_OOM_SCORE: Final = b"700"


@dataclass
class _Output:
    """The pipe that a worker's standard output and error go to."""

    pid: int
    fd: int
    shown_bytes: int = 0


@dataclass
class ForkServer:
    """Forks workers and reads what they write."""

    control: socket.socket
    config: dict[str, Any]
    outputs: dict[int, _Output] = field(default_factory=dict)
    over: dict[int, _Output] = field(default_factory=dict)

    def serve(self) -> None:
        """Serve until the engine closes the socket."""
        self._selector = selectors.DefaultSelector()
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._selector.register(self.control, selectors.EVENT_READ)
        self._selector.register(wake_read, selectors.EVENT_READ)
        while True:
            ready = self._selector.select(_DROP_EVERY_S if self.over else None)
            for output in tuple(self.over.values()):
                self._drain(output)
            for key, _ in ready:
                if key.fileobj is self.control:
                    if not self._accept():
                        return
                elif key.fd == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, _READ_BYTES)
                    self._reap()
                elif key.fd in self.outputs:
                    self._drain(self.outputs[key.fd])

    def end(self) -> None:
        """Kill every worker with what it has started."""
        for output in self.outputs.values():
            kill_group(output.pid)

    def _accept(self) -> bool:
        """Start a worker for the descriptor that arrived; return False at the socket's end."""
        data, fds, _, _ = socket.recv_fds(self.control, 1, 1)
        if not data:
            return False
        for fd in fds:
            self._fork(fd)
        return True

    def _fork(self, connection: int) -> None:
        read, write = os.pipe()
        os.set_blocking(read, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(read, _F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            pid = os.fork()
        except OSError as error:
            os.close(read)
            os.close(write)
            os.close(connection)
            self._tell({"refused": str(error)})
            return
        if pid == 0:
            _become_parent(connection, write, self.config)
        os.close(write)
        os.close(connection)
        self.outputs[read] = _Output(pid, read)
        self._selector.register(read, selectors.EVENT_READ)
        self._tell({"forked": pid})

    def _drain(self, output: _Output) -> bool:
        """Read what there is; return False at the end of the pipe or when nothing is there."""
        try:
            data = os.read(output.fd, _PIPE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._forget(output)
            return False
        room = SHOWN_BYTES - output.shown_bytes
        if room > 0:
            output.shown_bytes += len(data)
            self._tell({"text": data[:room].decode("utf-8", "replace"), "cut": len(data) > room})
        elif output.fd not in self.over:
            self._selector.unregister(output.fd)
            self.over[output.fd] = output
        return True

    def _forget(self, output: _Output) -> None:
        if self.over.pop(output.fd, None) is None:
            self._selector.unregister(output.fd)
        del self.outputs[output.fd]
        os.close(output.fd)

    def _reap(self) -> None:
        """Note the workers that have ended, and end what they have left running."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            # Before the process is reaped: its group's number cannot be another's yet.
            kill_group(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            for output in [
                output for output in self.outputs.values() if output.pid == ended.si_pid
            ]:
                while output.shown_bytes < SHOWN_BYTES and self._drain(output):
                    continue
                if output.fd in self.outputs:
                    self._forget(output)
            code = os.waitstatus_to_exitcode(status)
            self._tell({"ended": ended.si_pid, "code": code})

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.control.sendall(json.dumps(message).encode() + b"\n")


def kill_group(group: int) -> None:
    """Kill a process group, if there is one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _become_parent(connection: int, output: int, config: dict[str, Any]) -> NoReturn:
    """Fork the worker, and end as it ends; never returns.

    A worker that kills its parent must not kill that of others.
    """
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        worker = os.fork()
        if worker == 0:
            _become_worker(connection, output, config)
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        _, status = os.waitpid(worker, 0)
        code = os.waitstatus_to_exitcode(status)
        # Itself killed, this process says so; a worker that was killed is told apart from that.
        if code == -signal.SIGKILL:
            code = KILLED
        elif code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError, ValueError):
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
            code = 128 - code
    finally:
        os._exit(code)


def _become_worker(connection: int, output: int, config: dict[str, Any]) -> NoReturn:
    """Turn the forked process into a worker; never returns."""
    code = 70
    try:
        # Only the connection and the output are the worker's.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        last = os.sysconf("SC_OPEN_MAX")
        os.closerange(3, connection)
        os.closerange(connection + 1, last)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        limit = config["memory_limit"]
        if limit is not None:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        os.environ.clear()
        os.environ.update(config["environment"])
        from evalcore.isolation.worker_program import work
        from evalcore.trust.process_privacy import hide_process

        hide_process()
        work(connection)
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of the server may run on in a worker
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _read_config(control: socket.socket) -> dict[str, Any]:
    length = int.from_bytes(_exactly(control, 4), "big")
    config: dict[str, Any] = pickle.loads(_exactly(control, length))  # noqa: S301 - the engine's
    return config


def _exactly(control: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = control.recv(count - len(data))
        if not part:
            raise SystemExit
        data += part
    return bytes(data)


def main() -> None:
    """Read the configuration, import what every worker needs, serve."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=0)
    # Before the engine: the largest of the workers is killed first when memory is short.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(_OOM_SCORE)
    config = _read_config(control)
    sys.path[:] = config["path"]
    import gc
    import importlib

    from evalcore.trust.process_privacy import hide_process

    hide_process()

    for name in ("evalcore.isolation.worker_program", *config["preload"]):
        importlib.import_module(name)
    gc.freeze()
    server = ForkServer(control, config)
    try:
        server.serve()
    finally:
        server.end()
        os._exit(0)


if __name__ == "__main__":
    main()
