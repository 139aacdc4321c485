"""The thread that renews a lane's claims, looks at those of others, and for CANCEL."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from evalcore.errors import EvalError
from evalcore.execution.lanes.claims import RENEWALS, Claims
from evalcore.storage.runs import StoredRun

LOOK_FOR_CANCEL_S = 1.0
# Of a lane that has no shard to leave, in a store where each look is a request.
IDLE_LOOK_FOR_CANCEL_S = 3.0


class LeaseRenewer:
    """Renews the claims as long as its context; `cancelled` is called once when CANCEL stands.

    Trouble with the store is no reason to end: an expired claim costs work, never results.
    """

    def __init__(self, run: StoredRun, claims: Claims, cancelled: Callable[[], None]) -> None:
        self._run = run
        self._claims = claims
        self._cancelled = cancelled
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> LeaseRenewer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        every_s = self._claims.lease_s / RENEWALS
        pause_s = min(LOOK_FOR_CANCEL_S, every_s)
        due = time.monotonic() + every_s
        looked = 0.0
        is_cancelled = False
        while not self._ended.wait(max(0.0, min(pause_s, due - time.monotonic()))):
            if not is_cancelled and time.monotonic() - looked >= self._look_after_s():
                looked = time.monotonic()
                if self._is_cancelled():
                    is_cancelled = True
                    self._cancelled()
            if time.monotonic() < due:
                continue
            due = time.monotonic() + every_s
            self._claims.renew()
            with suppress(EvalError):
                # Seen early, the claims of a dead lane have expired when this one has time.
                self._claims.look_at_claims()

    def _look_after_s(self) -> float:
        is_idle = self._run.store.is_remote and not self._claims.claimed
        return IDLE_LOOK_FOR_CANCEL_S if is_idle else 0.0

    def _is_cancelled(self) -> bool:
        with suppress(EvalError):
            return self._run.is_cancel_requested()
        return False
