"""Where the Python of suites runs: in worker processes or in the engine's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evalcore.isolation.pool import WorkerPool


class Isolation(StrEnum):
    """Where a function of a suite is called."""

    PROCESS = "process"
    INLINE = "inline"


@dataclass(frozen=True, slots=True)
class Workers:
    """The worker processes of a run, and whether functions use them that do not say so."""

    pool: Callable[[], WorkerPool] | None = None
    default: Isolation = Isolation.INLINE

    def of(self, isolation: Isolation | None) -> WorkerPool | None:
        """Return the pool that a function is called in; None for this process."""
        if self.pool is None or (isolation or self.default) is not Isolation.PROCESS:
            return None
        return self.pool()


NO_WORKERS = Workers()
