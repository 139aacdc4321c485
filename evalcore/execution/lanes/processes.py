"""Which process executes a shard alone, and whether it lives: answered on its own machine only."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path

# After the name of the command, which may hold spaces and brackets: proc(5), field 22.
_START_FIELD = 19


@lru_cache(maxsize=1)
def this_process(pid: int) -> str:
    """Return the name of the process `pid` of this machine: host, id, when it started."""
    return f"{platform.node()}:{pid}:{_started(pid) or ''}"


def is_dead(process: str) -> bool | None:
    """Whether a process (`this_process`) has ended; None for a process of another machine."""
    host, _, rest = process.rpartition(":")[0].rpartition(":")
    started = process.rpartition(":")[2]
    if not host or host != platform.node() or not rest.isdecimal():
        return None
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return None
    # The id may be another process's by now; a zombie executes nothing.
    return bool(started) and _started(int(rest)) != started


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks since boot; None where that is unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else fields[_START_FIELD]
    except (OSError, LookupError):
        return None
