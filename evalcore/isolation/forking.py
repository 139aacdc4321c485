"""Whether this process may be forked, and on how many cores it may run."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

# Each process needs memory of its own.
MOST_PROCESSES: Final = 8


def can_fork() -> bool:
    """Whether a fork of this process is sound: it loses all threads but this one.

    Those of Python wait or draw progress; those of libraries may hold locks that a fork needs.
    """
    if sys.platform != "linux":
        return False
    return sum(1 for _ in Path("/proc/self/task").iterdir()) == threading.active_count()


def usable_cores() -> int:
    """Return on how many cores this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
