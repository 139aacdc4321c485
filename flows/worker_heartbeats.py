"""Which workers of a cluster hang: those whose sign of life has not changed for too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class _Heartbeat(NamedTuple):
    last: object
    since: float


class WorkerHeartbeats:
    """The last heartbeat of each worker, and since when it has been the last.

    No clocks are compared: `clock` (monotonic, seconds) is this process's, and what the cluster
    says is only looked at for changes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heartbeats: Mapping[str, _Heartbeat] = {}
        self._looked = clock()

    def silent(self, last_heartbeats: Mapping[str, object], after_s: float) -> tuple[str, ...]:
        """Return the workers whose heartbeat has been the same for `after_s`, sorted.

        After a pause of half of that between two looks everything starts afresh: the cluster's
        scheduler was silent itself, and has not heard its workers either.
        """
        now = self._clock()
        if now - self._looked > after_s / 2:
            self._heartbeats = {}
        self._looked = now
        self._heartbeats = {
            worker: self._noted(worker, last, now) for worker, last in last_heartbeats.items()
        }
        return tuple(
            worker
            for worker, heartbeat in sorted(self._heartbeats.items())
            if now - heartbeat.since >= after_s
        )

    def _noted(self, worker: str, last: object, now: float) -> _Heartbeat:
        before = self._heartbeats.get(worker)
        return before if before is not None and before.last == last else _Heartbeat(last, now)
