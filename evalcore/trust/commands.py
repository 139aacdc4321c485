"""Run foreign programs within limits of time, output and memory."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from evalcore.trust.machine_faults import told_as_fault, unwritable, waited_out
from evalcore.trust.processes import hide_process, watchdog

NOT_FOUND: Final = 127
NOT_STARTED: Final = 126
OUTPUT_LIMIT: Final = 1 << 20

_INHERITED: Final = ("PATH", "HOME", "LANG", "TMPDIR", "SYSTEMROOT")
# How long a program may take to end after SIGTERM, and how long its pipes are read after its end
# when something that it left running still holds them open.
_TERMINATE_GRACE_S: Final = 2.0
_PIPE_GRACE_S: Final = 1.0
_NO_PROCESS: Final = "the machine has too many processes or open files, or too little memory"


class CommandResult(NamedTuple):
    """How a program ended and what it wrote.

    `exit_code` is negative for a signal (-9), 127 where there is no such program and 126 where it
    could not be started; then `stderr` says why. `truncated`: `stdout` lacks its end or `stderr`
    its beginning.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool

    def failure(self, timeout_s: float) -> str:
        """Return how the program failed, such as `ended with exit code 3`; empty for exit code 0.

        `timeout_s` is what it was given.
        """
        if self.timed_out:
            return f"took longer than {timeout_s:g} s"
        if self.exit_code < 0:
            return f"was killed by signal {-self.exit_code}"
        return f"ended with exit code {self.exit_code}" if self.exit_code else ""


async def run_command(
    argv: Sequence[str] | str,
    *,
    stdin: bytes = b"",
    cwd: Path,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    output_limit: int = OUTPUT_LIMIT,
    memory_limit: int | None = None,
) -> CommandResult:
    """Run a program (an array: no shell; a string: `/bin/sh -c`) and return how it ended.

    Its environment is PATH, HOME, LANG, LC_*, TMPDIR, SYSTEMROOT and `env`. `stdin` is a file to
    it, so it may leave it unread and open `/dev/stdin`. It runs in a session of its own: after
    `timeout_s` or on cancellation the whole process group gets SIGTERM and soon SIGKILL; processes
    of the group that outlive the program are killed as well. (A descendant that makes a
    session of its own escapes that, and is not waited for.) Of each of the two outputs at most
    `output_limit` bytes are kept: the beginning of stdout, the end of stderr. `memory_limit`
    bounds the address space of each process in bytes. The program cannot read this process's
    environment or memory. A program that cannot be started is a result
    too, not an exception. Raises `StoreError` if the machine has no room for its input or no
    process for it, after pauses.
    """
    collector = _Collector(output_limit)

    async def start() -> asyncio.SubprocessTransport:
        with _input_file(stdin) as source, told_as_fault("cannot start a program", _NO_PROCESS):
            program = _program(argv, memory_limit)
            return await _started(program, source, collector, cwd, minimal_environment(env or {}))

    try:
        process = await waited_out(start)
    except (OSError, ValueError) as error:
        return _not_started(argv, cwd, error)
    timed_out = await _wait(process, collector, timeout_s)
    exit_code = process.get_returncode()
    return CommandResult(
        exit_code=-signal.SIGKILL if exit_code is None else exit_code,
        stdout=bytes(collector.stdout),
        stderr=bytes(collector.stderr[-output_limit:]) if output_limit else b"",
        timed_out=timed_out,
        truncated=collector.truncated,
    )


class _Collector(asyncio.SubprocessProtocol):
    """Keeps what a program writes, up to a limit, and knows when it has ended."""

    def __init__(self, limit: int) -> None:
        self.stdout = bytearray()
        self.stderr = bytearray()
        self.truncated = False
        self.ended = asyncio.Event()
        self.closed = asyncio.Event()
        self._limit = limit
        self._open = {1, 2}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 1:
            room = self._limit - len(self.stdout)
            self.truncated |= len(data) > room
            self.stdout += data[:room]
            return
        self.stderr += data
        if len(self.stderr) > self._limit:
            self.truncated = True
            # Twice the limit before the beginning goes: not one move of memory per read.
            if len(self.stderr) > 2 * self._limit:
                del self.stderr[: -self._limit or None]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        self.ended.set()


async def _started(
    program: Sequence[str],
    source: int | IO[bytes],
    collector: _Collector,
    cwd: Path,
    env: Mapping[str, str],
) -> asyncio.SubprocessTransport:
    hide_process()
    start = asyncio.ensure_future(
        asyncio.get_running_loop().subprocess_exec(
            lambda: collector,
            *program,
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
    )
    try:
        process, _ = await asyncio.shield(start)
    except asyncio.CancelledError:
        # Left alone, asyncio would kill the program but not what it has started already.
        process, _ = await start
        await _wait(process, collector, 0)
        raise
    return process


async def _wait(
    process: asyncio.SubprocessTransport, collector: _Collector, timeout_s: float
) -> bool:
    """Wait for the end of the program and of its output; return whether its time ran out."""
    group = process.get_pid()
    timed_out = False
    try:
        watchdog().began(group)
        try:
            timed_out = not await _within(timeout_s, collector.ended)
        finally:
            if not collector.ended.is_set():
                _signal_group(group, signal.SIGTERM)
                await _within(_TERMINATE_GRACE_S, collector.ended)
        await _within(0 if timed_out else _PIPE_GRACE_S, collector.closed)
    finally:
        # Also reached when a second cancellation cuts the grace short.
        _signal_group(group, signal.SIGKILL)
        try:
            await _within(_TERMINATE_GRACE_S, collector.ended)
            await _within(_PIPE_GRACE_S, collector.closed)
        finally:
            process.close()
            watchdog().ended(group)
    return timed_out


async def _within(seconds: float, event: asyncio.Event) -> bool:
    if event.is_set():
        return True
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _signal_group(group: int, number: signal.Signals) -> None:
    # macOS answers EPERM for a group that consists of zombies only.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


@contextlib.contextmanager
def _input_file(data: bytes) -> Iterator[int | IO[bytes]]:
    if not data:
        yield subprocess.DEVNULL
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(data)
            file.seek(0)
        except OSError as error:
            raise unwritable(error) from error
        yield file


def _program(argv: Sequence[str] | str, memory_limit: int | None) -> list[str]:
    program = ["/bin/sh", "-c", argv] if isinstance(argv, str) else list(argv)
    if not program:
        raise ValueError("an empty command")
    if memory_limit is None:
        return program
    # The shell sets the limit and becomes the program: nothing runs between fork and exec in a
    # process with threads, and no child is started before the limit holds.
    limit = 'ulimit -v "$0" && exec "$@"'
    return ["/bin/sh", "-c", limit, str(memory_limit // 1024), *program]


def minimal_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return `extra` and the part of this process's environment that `run_command` names."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith("LC_")
    }
    return {"PATH": os.defpath, **inherited, **extra}


def _not_started(argv: Sequence[str] | str, cwd: Path, error: Exception) -> CommandResult:
    name = "/bin/sh" if isinstance(argv, str) else next(iter(argv), "")
    code = NOT_STARTED
    if not cwd.is_dir():
        reason = f"the working directory {cwd} is not a folder"
    elif isinstance(error, FileNotFoundError):
        code, reason = NOT_FOUND, "there is no such program"
    elif isinstance(error, OSError) and error.errno == errno.E2BIG:
        reason = "its arguments are too long; pass long texts in a file or on standard input"
    else:
        reason = str(error)
    message = f"cannot run {name!r}: {reason}"
    return CommandResult(code, b"", message.encode(errors="replace"), False, False)
