"""Processes of a run that share its limits, moved by hand, and a store in memory that may fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.execution.budget import NOTHING_SPENT, Grant, RunBudget, Spent, TokenDemand
from evalcore.execution.shared import SharedLimits, SharedState, decode_limits
from evalcore.storage.layout import NameKey, RunKeys
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import StoredObject

KEYS = RunKeys(NameKey("s"), "20260518T100000Z-0a0b0c")
LOOK_S = 0.05


class MemoryStore(LocalStore):
    """Keeps single objects in memory. `fails` says before each swap how it goes.

    "lost": nothing is written. "unanswered": it is written, and the answer is lost. Both raise.
    """

    def __init__(self, root: Path, fails: Callable[[], str] = lambda: "") -> None:
        super().__init__(root)
        self.objects: dict[str, StoredObject] = {}
        self._fails = fails
        self._writes = 0

    def get(self, key: str) -> StoredObject:
        if key not in self.objects:
            raise ObjectNotFoundError(key)
        return self.objects[key]

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        assert isinstance(data, bytes)
        return None if key in self.objects else self._written(key, data)

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        how = self._fails()
        if how == "lost":
            raise StoreError(f"{key}: no answer")
        if self.get(key).etag != etag:
            return None
        written = self._written(key, data)
        if how == "unanswered":
            raise StoreError(f"{key}: no answer")
        return written

    def _written(self, key: str, data: bytes) -> str:
        self._writes += 1
        self.objects[key] = StoredObject(data, str(self._writes))
        return str(self._writes)


class LimitedProcess:
    """One process of a run, whose thread is moved by hand (`step`) or by a task (`live`)."""

    def __init__(
        self,
        run: StoredRun,
        clock: Callable[[], float],
        *,
        processes: int = 1,
        base: Spent = NOTHING_SPENT,
        **limits: Any,
    ) -> None:
        self._budget = RunBudget(**limits, shared=True)
        self.failures: list[StoreError] = []
        self.has_failed = threading.Event()
        self.sync = SharedLimits(
            run,
            budget=self._budget,
            base=lambda: (base, 0.0),
            failed=self._fail,
            processes=processes,
            clock=clock,
        )
        self.sync.step()

    def _fail(self, error: StoreError) -> None:
        self.failures.append(error)
        self.has_failed.set()

    @property
    def budget(self) -> RunBudget:
        return self._budget

    def step(self) -> None:
        self.sync.step()

    async def live(self) -> None:
        """Step now and then; cancelled, it is dead."""
        while True:
            self.step()
            await asyncio.sleep(LOOK_S)

    def try_reserve(self, demand: TokenDemand) -> Grant | None:
        return self.budget.try_reserve(demand, 4)


def stored_limits(run: StoredRun) -> SharedState:
    return decode_limits(run.store.get(KEYS.limits).data, KEYS.limits)
