"""Give back to the system what a process has freed, before it needs memory for something else."""

from __future__ import annotations

import sys


def return_free_memory() -> None:
    """Ask the C library to return the memory that nobody uses.

    Threads that read, grade and write shards leave each its own pool of it behind: 150 MB after a
    run through Prefect. Only glibc keeps such pools; with another library this does nothing.
    """
    if sys.platform != "linux":
        return
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
