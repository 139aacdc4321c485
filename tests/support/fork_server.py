"""A process that has imported evalcore and forks for each command line.

The commands are processes of their own, with their own directory, environment, streams and end;
only imports and validators, nine tenths of what a small run costs, are made once.
`tests.support.shell` is its client.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

PROGRAM = str(Path(sys.executable).with_name("evalcore"))
# A pipe takes so many bytes without a reader.
_PIPE_BYTES = 65_536
_SUITE = """\
name: warm
targets: [{name: echo, provider: echo}]
execution: {target: echo}
assertions: [{type: contains, value: word}]
tests: [{id: t, input: word}]
"""
# What commands of many tests import beside that suite's run.
_MODULES = (
    "evalcore.checks.judged",
    "evalcore.cli.dataset",
    "evalcore.cli.check",
    "evalcore.cli.running",
    "evalcore.cli.report",
    "evalcore.cli.runs",
    "evalcore.datasets.store",
    "evalcore.execution.judges",
    "evalcore.execution.worker",
    "evalcore.formats.script_suite",
    "evalcore.formats.workflow_file",
    "evalcore.providers.openai",
    "evalcore.report.terminal",
    "evalcore.targets.model",
    "evalcore.targets.python",
    "genai_prices",
)
# In a command's environment: its comparisons take all latencies for equal. Else what they say would
# depend on whether the machine is busy, on which a call takes more than `CLOCK_NOISE_MS`.
LATENCIES_ARE_EQUAL = {"TESTS_LATENCIES_ARE_EQUAL": "1"}
# Python reads these, and the loader of libraries, when an interpreter starts.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "COV_", "COVERAGE_", "OPENBLAS_", "OMP_")


def is_alike(environment: dict[str, str]) -> bool:
    """Whether a process with this environment starts as the fork server did."""
    return _of_start(environment) == _of_start(dict(os.environ)) and not any(
        name.startswith("COV") for name in os.environ
    )


def _of_start(environment: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if name.startswith(_READ_AT_START)}


def run_forked(
    arguments: list[str], *, cwd: Path, environment: dict[str, str], stdin: str, timeout_s: float
) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of an `evalcore` command.

    As `subprocess.run`, it returns when both streams are closed by all that have them. Raises
    `subprocess.TimeoutExpired`.
    """
    request = json.dumps([arguments, str(cwd), environment]).encode()
    with tempfile.TemporaryFile() as file:
        file.write(request)
        file.flush()
        file.seek(0)
        pipes = [os.pipe() for _ in range(3)]
        standard_input = _input(stdin.encode())
        ends = [standard_input, *(pipe[1] for pipe in pipes), file.fileno()]
        try:
            socket.send_fds(_server(os.getpid())[0], [b"."], ends)
        finally:
            for end in ends[:-1]:
                os.close(end)
    out, err, status = _read_all([pipe[0] for pipe in pipes], timeout_s, arguments)
    return int(status.split()[1]), out.decode(), err.decode()


def _input(content: bytes) -> int:
    if len(content) <= _PIPE_BYTES:
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        return reader
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        file.seek(0)
        return os.dup(file.fileno())


def _read_all(readers: list[int], timeout_s: float, arguments: list[str]) -> list[bytes]:
    """Return what comes through the pipes; the last one tells the process's id first."""
    contents = dict.fromkeys(readers, b"")
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(timeout_s)
            if not ready:
                os.kill(int(contents[readers[-1]].split()[0]), 9)
                raise subprocess.TimeoutExpired(arguments, timeout_s)
            for key, _ in ready:
                chunk = os.read(key.fd, 1 << 16)
                contents[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    return [contents[reader] for reader in readers]


@cache
def _server(of_process: int) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Return the fork server of this process and its socket; it ends with this process."""
    del of_process  # a fork of this process must not share the socket
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            # What Python makes of its streams depends on what they are: pipes, as the commands'.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A fork has only one thread: there must be no other to miss.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
    return ours, process


class _ForkServer:
    """Forks a process for each request; tells its id and, later, its exit code."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> list[str] | None:
        """Return a command's arguments in each forked process, None in this one at the end."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is not self._control:
                    self._reap(key)
                    continue
                _, fds, _, _ = socket.recv_fds(self._control, 16, 8)
                if not fds:  # the client has ended
                    return None
                if (arguments := self._fork(fds)) is not None:
                    return arguments

    def _fork(self, fds: list[int]) -> list[str] | None:
        *streams, status, request = fds
        if pid := os.fork():
            os.write(status, f"{pid} ".encode())
            self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, status))
            for fd in (*streams, request):
                os.close(fd)
            return None
        for key in self._selector.get_map().values():
            os.close(key.fd)
            if key.data:
                os.close(key.data[1])
        self._control.detach()
        self._selector.close()
        with os.fdopen(request, "rb") as file:
            arguments, cwd, environment = json.load(file)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.close(status)
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(environment)
        return [str(argument) for argument in arguments]

    def _reap(self, key: selectors.SelectorKey) -> None:
        pid, status = key.data
        self._selector.unregister(key.fd)
        os.close(key.fd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, str(code).encode())
        os.close(status)


def _prepare() -> None:
    """Make once what each command would make for itself: imports, validators of a suite's shapes.

    The garbage collector leaves them alone, else each command would copy the pages that it visits.
    """
    _import_what_a_run_imports()
    from evalcore.formats.registry import load_suite

    for module in _MODULES:
        __import__(module)
    with tempfile.TemporaryDirectory() as folder:
        suite = Path(folder, "warm.eval.yaml")
        suite.write_text(_SUITE)
        load_suite(suite)
    gc.collect()
    gc.freeze()


def _import_what_a_run_imports() -> None:
    """Import the modules of a small run, which a process of its own names."""
    import evalcore.cli.main

    reader, writer = os.pipe()
    if pid := os.fork():
        os.close(writer)
        with os.fdopen(reader) as names:
            modules = names.read().split()
        os.waitpid(pid, 0)
        for module in modules:
            with suppress(Exception):
                __import__(module)
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "warm.eval.yaml").write_text(_SUITE)
        os.chdir(folder)
        os.environ["XDG_STATE_HOME"] = folder
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        with suppress(SystemExit):
            evalcore.cli.main.call(["run", "warm.eval.yaml", "--json", "--store", "store"])
    os.write(writer, "\n".join(sys.modules).encode())
    os._exit(0)


def _main(control: int) -> None:
    _prepare()
    arguments = _ForkServer(socket.socket(fileno=control)).serve()
    if arguments is None:
        return
    if LATENCIES_ARE_EQUAL.items() <= os.environ.items():
        from evalcore.gates import comparing
        from evalcore.pipeline import compare

        for module in (comparing, compare):
            vars(module)["CLOCK_NOISE_MS"] = float("inf")
    # As the console script does.
    from evalcore.cli.main import main

    entry: Any = main
    sys.argv = [PROGRAM, *arguments]
    sys.path[0] = str(Path(PROGRAM).parent)
    sys.exit(entry())


if __name__ == "__main__":
    _main(int(sys.argv[1]))
