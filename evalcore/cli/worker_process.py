"""A worker as a child process: how it is started, and what it tells its parent when it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from evalcore.errors import (
    EvalError,
    ExitCode,
    MemoryLimitError,
    RunConflictError,
    RunGoneError,
    StalledError,
    StoreError,
)

COMMAND = (sys.executable, "-P", "-c", "from evalcore.cli.main import main; main()", "worker")
# What may be better for another process, or a moment later.
_PASSING = (StoreError, RunConflictError, MemoryLimitError, StalledError)
# A pipe takes so many bytes without a reader.
_LONGEST_FAULT = 32_768
# These signals come from outside: the process itself may be healthy.
_FROM_OUTSIDE = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
)


class WorkerFault(NamedTuple):
    """The error that a worker ended with. A `final` one is the same for every process."""

    message: str
    exit_code: int
    final: bool
    stalled: bool


def send_fault(fd: int, error: EvalError) -> None:
    """Tell the parent of an error, in place of everybody."""
    fault = WorkerFault(
        str(error)[:_LONGEST_FAULT],
        int(error.exit_code),
        not isinstance(error, _PASSING) or isinstance(error, RunGoneError),
        isinstance(error, StalledError),
    )
    with suppress(OSError):  # the parent is gone
        os.write(fd, json.dumps(fault).encode()[: 2 * _LONGEST_FAULT])


class WorkerProcess:
    """A child process that executes shards of a run; `isolated` is the only one that it may.

    `environment` is the whole of its environment, by default this process's.
    """

    def __init__(
        self,
        command: Sequence[str],
        name: str,
        isolated: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.isolated = isolated
        self._fault: WorkerFault | None = None
        self._faults, fd = os.pipe()
        os.set_blocking(self._faults, False)
        only = () if isolated is None else ("--isolated", str(isolated))
        try:
            # In this process's group: what a terminal stops or kills are all of them.
            self.process = subprocess.Popen(
                [*command, "--name", name, "--fault-fd", str(fd), *only],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(fd,),
                env=environment,
            )
        finally:
            os.close(fd)

    def poll(self) -> int | None:
        """Return the exit code, None as long as it runs."""
        return self.process.poll()

    def fault(self) -> WorkerFault | None:
        """Return what an ended worker told of itself."""
        if self._faults >= 0:
            with suppress(OSError, ValueError, TypeError):
                # What the worker has left behind may hold the pipe open: no end is awaited.
                self._fault = WorkerFault(*json.loads(os.read(self._faults, 8 * _LONGEST_FAULT)))
            os.close(self._faults)
            self._faults = -1
        return self._fault


def describe_end(code: int) -> str:
    """Return how a process ended, for a person."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"signal {-code} ({signal.Signals(-code).name})"
    return f"signal {-code}"


def is_interpreter_death(code: int) -> bool:
    """Whether something that the process executed ended it, against its will."""
    if code < 0:
        return -code not in _FROM_OUTSIDE
    return code not in {ExitCode.USAGE, ExitCode.ERRORS}
