"""What this process holds stays its own: a program that it starts cannot read it.

On Linux a process may read the environment and the memory of another one of its user in `/proc`.
This process is made one that only a tracing privilege opens, and the programs that it starts lose
that privilege, which a superuser's would have. The environment that `/proc` shows is overwritten as
well: newer kernels open it to further privileges. Elsewhere nothing is done: there is no `/proc`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Final

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
