"""Which process it is, and whether it lives: answered on its own machine only."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple


class ProcessId(NamedTuple):
    """What names one process among all of all machines, also after its number is used again.

    `boot_id` names the start of the machine and, in a container, the process table. `started` is
    in seconds, since that start where the system says it (so that setting the clock changes
    nothing), else since 1970. A value read from JSON is `ProcessId(*values)`.
    """

    host: str
    boot_id: str
    pid: int
    started: float


def this_process() -> ProcessId:
    """Return what names this process."""
    return _named(os.getpid())


@cache  # by number: a forked child is another process
def _named(pid: int) -> ProcessId:
    return ProcessId(platform.node(), _boot_id(), pid, _started(pid))


def is_alive(process: ProcessId) -> bool | None:
    """Whether the process still runs; None where this machine cannot know.

    A stopped one runs; one that has ended without its parent having noticed (a zombie) does not.
    """
    import psutil

    if (process.host, process.boot_id) != (platform.node(), _boot_id()):
        return None
    try:
        status = psutil.Process(process.pid).status()
        # The clock may be set between two readings; no number is used again within two seconds.
        is_same = abs(_started(process.pid) - process.started) < 2
        return is_same and status not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except (psutil.NoSuchProcess, ValueError, OverflowError):  # what is no process's number, too
        return False
    except psutil.AccessDenied:
        return None


def _boot_id() -> str:
    parts = []
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
    with suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _started(pid: int) -> float:
    import psutil

    # Linux knows the seconds since the machine's start; psutil adds the time of that by the clock.
    since_s = psutil.boot_time() if sys.platform == "linux" else 0.0
    return round(psutil.Process(pid).create_time() - since_s, 2)
