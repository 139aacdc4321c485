"""Functions of the tests in processes of their own, which share no thread with the test process."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def until(
    is_so: Callable[[], T],
    process: subprocess.Popen[bytes] | None = None,
    *,
    why: Callable[[], object] = lambda: "it did not happen",
    seconds: float = 120,
    pause_s: float = 0.02,
) -> T:
    """Wait until something is so, and return it; `process` may not end before that."""
    deadline = time.monotonic() + seconds
    while not (found := is_so()):
        assert process is None or process.poll() is None, why()
        assert time.monotonic() < deadline, why()
        time.sleep(pause_s)
    return found


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def start_process(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> BaseProcess:
    """Start a function of a module in a process of its own; arguments are pickled.

    It has the environment of this moment.

    A test process has threads (of DuckDB, earlier tests), which a fork of it would
    not survive: the processes are forked from a clean one that has imported what takes long.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["duckdb", "evalcore.history.compaction"])
    given = (dict(os.environ), function, args, kwargs)
    process = context.Process(target=_in_environment, args=given)
    process.start()
    return process


def _in_environment(
    environ: dict[str, str],
    function: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    # The server that forks has the environment of the first test that needed it.
    os.environ.clear()
    os.environ.update(environ)
    function(*args, **kwargs)


def exit_code(function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> int | None:
    """Execute a function in a process of its own; return its exit code (negative: a signal's).

    None: it has not ended within a minute; it is killed then.
    """
    process = start_process(function, *args, **kwargs)
    process.join(60)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
    return code
