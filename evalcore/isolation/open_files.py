"""How many files and connections this process may have open."""

from __future__ import annotations

import sys
from typing import Final

# What a process has open beside its calls: the interpreter, the store, a database.
_OTHERS: Final = 64
# A program that answers has pipes and files of its own.
_OF_ONE_CALL: Final = 2


def bounded_by_open_files(calls: int) -> int:
    """Return how many of so many calls may be made at once, at least 1.

    Shells give a process 1024 open files, of many more that it may take: as many as the calls need
    are taken.
    """
    if sys.platform == "win32":
        return calls
    import resource

    needed_files = calls * _OF_ONE_CALL + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed_files:
        return calls
    most = needed_files if hard == resource.RLIM_INFINITY else min(needed_files, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # the system takes less than it names
        most = soft
    return max(1, min(calls, (most - _OTHERS) // _OF_ONE_CALL))
