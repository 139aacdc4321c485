"""Processes: which one it is, what those that it starts may read of it, and how they end with it.

On Linux a process may read the environment and the memory of another one of its user in `/proc`.
This process is made one that only a tracing privilege opens, and the programs that it starts lose
that privilege, which a superuser's would have. The environment that `/proc` shows is overwritten as
well: newer kernels open it to further privileges. Elsewhere nothing is done: there is no `/proc`.
"""

from __future__ import annotations

import atexit
import math
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, NamedTuple


class ProcessId(NamedTuple):
    """What names one process among all of all machines, also after its number is used again.

    `boot_id` names the start of the machine and, in a container, the process table. `started` is
    in seconds since 1970. A value read from JSON is `ProcessId(*values)`.
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
    import psutil

    started = round(psutil.Process(pid).create_time(), 2)
    return ProcessId(platform.node(), _boot_id(), pid, started)


def is_alive(process: ProcessId) -> bool | None:
    """Whether the process still runs; None where this machine cannot know.

    A stopped one runs; one that has ended without its parent having noticed (a zombie) does not.
    """
    import psutil

    if process == this_process():
        return True
    if (process.host, process.boot_id) != (platform.node(), _boot_id()):
        return None
    try:
        found = psutil.Process(process.pid)
        # No number is used again within two seconds.
        is_same = abs(found.create_time() - process.started) < 2
        return is_same and found.status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
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


_SET_DUMPABLE: Final = 4
_BOUND_DROP: Final = 24
_TRACE: Final = 19
# In /proc/self/stat, after the name in parentheses: where the environment begins and ends.
_ENVIRONMENT: Final = slice(47, 49)


def hide_process() -> None:
    """Close this process to the programs that the calling thread starts from now on.

    To be called before each start: a privilege is dropped for a thread and what it starts. The
    process leaves no core dump, a debugger needs to be a superuser's, and `/proc/self/environ` is
    empty; `os.environ` and C's `getenv` are as before.
    """
    control = _process_control()
    if control is not None:
        control(_SET_DUMPABLE, 0, 0, 0, 0)
        control(_BOUND_DROP, _TRACE, 0, 0, 0)


@lru_cache(maxsize=1)
def _process_control() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    import ctypes

    try:
        control = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    control.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    _overwrite_environment()
    process_control: Callable[..., int] = control
    return process_control


def _overwrite_environment() -> None:
    """Overwrite the environment that the process was started with; a copy of it stays in use."""
    import ctypes

    try:
        stat = Path("/proc/self/stat").read_text()
        begin, end = map(int, stat.rpartition(")")[2].split()[_ENVIRONMENT])
    except (OSError, ValueError):
        return
    # Each gets memory of its own: what C code asks for is not read from the old place any more.
    for name, value in os.environ.items():
        os.putenv(name, value)
    if 0 < begin < end:
        ctypes.memset(begin, 0, end - begin)


# Reads `+ GROUP` and `- GROUP`; at the end of its input it kills the groups that are left.
_WATCH: Final = """
trap '' HUP INT TERM
groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
"""
_LEAVE_S: Final = 2.0


class Watchdog:
    """Ends the programs of this process when it is killed; safe in several threads.

    A shell of a few hundred kilobytes waits for the end of a pipe that only this process holds
    open. Then it kills the process groups that it was told of.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        hide_process()
        with suppress(OSError):  # without a shell there is no watch; the programs run all the same
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", _WATCH, "watchdog"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                cwd="/",
                start_new_session=True,
            )
        atexit.register(self.close)

    def began(self, group: int) -> None:
        """Note that a process group is this process's to end."""
        self._tell(b"+ %d\n" % group)

    def ended(self, group: int) -> None:
        """Note that a process group has ended."""
        self._tell(b"- %d\n" % group)

    def close(self) -> None:
        """End what still runs, and the shell; wait a moment for it."""
        shell, self._shell = self._shell, None
        if shell is None or os.getpid() != self._pid:
            return
        with suppress(OSError):
            if shell.stdin is not None:
                shell.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            shell.wait(_LEAVE_S)

    def _tell(self, line: bytes) -> None:
        with self._lock, suppress(OSError, ValueError):
            if self._shell is not None and self._shell.stdin is not None:
                os.write(self._shell.stdin.fileno(), line)


def watchdog() -> Watchdog:
    """Return this process's watchdog, started with the first program."""
    return _watchdog(os.getpid())


@lru_cache(maxsize=1)
def _watchdog(_process: int) -> Watchdog:
    return Watchdog()


_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")


def total_memory() -> int | None:
    """Return how many bytes of memory the machine has, or the container; None if not known."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    try:
        return min(total, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no container, or one without a limit (`max`)
        return total


_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Return how many processors this process may use."""
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
        return min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no container, or one without a limit (`max`)
        return cores
