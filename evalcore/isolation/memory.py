"""How much memory worker processes may take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
_LEAST_LIMIT: Final = 1 << 30
# Of all memory: what one worker process may have, and what has to be left for a further one.
_SHARE_OF_ONE: Final = 0.75
_LEFT_FREE: Final = 0.1


def memory_limit() -> int | None:
    """Return how many bytes of data one worker process may have; None if that is not known.

    It is three quarters of the machine's memory, or of the container's.
    """
    total = total_memory()
    return None if total is None else max(_LEAST_LIMIT, int(total * _SHARE_OF_ONE))


def memory_is_short() -> bool:
    """Whether a further process is likely to make this machine run out of memory."""
    available = _read_kilobytes("MemAvailable:")
    total = total_memory()
    return available is not None and total is not None and available < total * _LEFT_FREE


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


def _read_kilobytes(name: str) -> int | None:
    try:
        with _MEMINFO.open() as file:
            for line in file:
                if line.startswith(name):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        return None
    return None
