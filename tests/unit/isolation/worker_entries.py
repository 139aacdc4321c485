"""Entries of jobs that `test_worker` sends to a worker process."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from threading import Event
from typing import Any

from evalcore.errors import TargetError
from evalcore.isolation.protocol import LONGEST_LINE
from evalcore.isolation.worker import Engine
from evalcore.trust.imports import call_foreign


async def double(payload: Any, engine: Engine) -> Any:
    """Return twice the payload."""
    engine.loaded()
    return payload * 2


async def ask(payload: Any, engine: Engine) -> Any:
    """Return what the engine answers to a question."""
    return await engine.ask("name", payload)


async def refuse(payload: Any, engine: Engine) -> Any:
    """Raise an error of a target."""
    raise TargetError("refused", f"no {payload}")


async def crash(payload: Any, engine: Engine) -> Any:
    """Raise an exception that is none of a target."""
    raise LookupError(payload)


async def sleep(payload: Any, engine: Engine) -> Any:
    """Wait until the job is cancelled."""
    engine.loaded()
    await asyncio.sleep(600)


async def write_when_cancelled(payload: str, engine: Engine) -> None:
    """Write a file from a thread, a moment after the job is cancelled."""
    cancelled = Event()

    def write() -> None:
        cancelled.wait(60)
        time.sleep(0.1)
        Path(payload).touch()

    engine.loaded()
    try:
        await call_foreign(write)
    finally:
        cancelled.set()


async def write_long_text(payload: Any, engine: Engine) -> Any:
    """Return more than a message holds."""
    return "x" * LONGEST_LINE
