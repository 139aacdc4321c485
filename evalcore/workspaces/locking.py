"""A folder that several processes use as it is, one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from evalcore.errors import TargetError


@asynccontextmanager
async def locked(root: Path, folder: Path) -> AsyncIterator[None]:
    """Hold the lock of a folder on this machine, which stands below `root`."""
    from filelock import AsyncFileLock

    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    # Not in a thread: an attempt takes no time, and between two the event loop goes on.
    lock = AsyncFileLock(root / f"{name}.lock", run_in_executor=False, fallback_to_soft=False)
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        await lock.acquire()
    except OSError as error:
        raise TargetError("workspace", f"{folder} cannot be locked: {error}") from error
    try:
        yield
    finally:
        await lock.release()
