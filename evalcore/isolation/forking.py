"""Whether this process may be forked, and how many processes may share its work."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from evalcore.isolation.memory import total_memory

_MOST_PROCESSES: Final = 8
# Each needs memory of its own: rows of a shard, and DuckDB, which writes them.
_BYTES_OF_ONE: Final = 512 << 20
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def can_fork() -> bool:
    """Whether a fork of this process is sound: it loses all threads but this one.

    Those of Python wait or draw progress; those of libraries may hold locks that a fork needs. A
    process whose parent ignored SIGCHLD cannot learn how its forks ended.
    """
    if sys.platform != "linux" or signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        return False
    return sum(1 for _ in Path("/proc/self/task").iterdir()) == threading.active_count()


def process_limit() -> int:
    """Return how many processes may share work here.

    One for each core that this process or its container may use and for each 512 MiB of memory, at
    most 8.
    """
    memory = total_memory()
    by_memory = _MOST_PROCESSES if memory is None else memory // _BYTES_OF_ONE
    return max(1, min(_usable_cores(), by_memory, _MOST_PROCESSES))


def _usable_cores() -> int:
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _QUOTA.read_text().split()
        return min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no container, or one without a limit (`max`)
        return cores
