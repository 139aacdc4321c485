"""An exclusive lock on a file, against threads and processes alike; a crash releases it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from evalcore.errors import StoreError

LOCK_WAIT_S: Final = 30.0
"""How long a lock is waited for. It is held for a rename only, unless its process is stopped."""
_FIRST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.05
_STOPPED: Final = ("T", "t")


@contextmanager
def hold_lock(path: Path, label: str, *, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the lock of a file, which is created if it is not there.

    Raises `StoreError` after `wait_s` seconds, with `label` (what the lock is for) and, where the
    system says it, the process that holds the lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _take(descriptor, path, label, wait_s)
        try:
            yield
        finally:
            # Not left to close(): a child forked meanwhile holds a copy of the descriptor.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, label: str, wait_s: float) -> None:
    # The pauses are counted and not the clock: it goes on while this process is stopped itself.
    waited_s, pause_s = 0.0, _FIRST_PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waited_s >= wait_s:
                raise StoreError(
                    f"{label}: its lock {path} has been held for {wait_s:g} s by "
                    f"{_describe_holder(descriptor)}"
                ) from None
            time.sleep(pause_s)
            waited_s += pause_s
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        else:
            return


def _describe_holder(descriptor: int) -> str:
    """Return which process holds the lock of the file, and what ends that."""
    process = _lock_holder(descriptor)
    if process is None:
        return "a process that the system does not name; nothing was written"
    name, state = _name_and_state(process)
    if state in _STOPPED:
        return (
            f"process {process} ({name}), which is stopped: `kill -CONT {process}` lets it go on, "
            f"`kill -KILL {process}` ends it"
        )
    return f"process {process} ({name}); nothing was written"


def _lock_holder(descriptor: int) -> int | None:
    """Return the id of the process that has locked the file, as Linux lists it."""
    status = os.fstat(descriptor)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text("ascii").splitlines():
            # `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`; a line with `->` waits.
            fields = line.split()
            if len(fields) > 5 and fields[1] != "->" and fields[5] == device:
                # 0 or less: a process of another container.
                return max(int(fields[4]), 0) or None
    return None


def _name_and_state(process: int) -> tuple[str, str]:
    """Return the name of a program and the letter of its state (proc(5))."""
    try:
        text = Path(f"/proc/{process}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return "unknown", ""
    name, _, facts = text.partition("(")[2].rpartition(")")
    return name, facts.split()[0]
