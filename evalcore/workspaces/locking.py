"""A folder that several processes use as it is, one at a time."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from evalcore.errors import TargetError

_POLL_S: Final = 0.05


@asynccontextmanager
async def locked(root: Path, folder: Path) -> AsyncIterator[None]:
    """Hold the lock of a folder on this machine, which stands below `root`."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (root / f"{name}.lock").open("w")
    except OSError as error:
        raise TargetError("workspace", f"{folder} cannot be locked: {error}") from error
    with lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(_POLL_S)
            else:
                break
        yield
