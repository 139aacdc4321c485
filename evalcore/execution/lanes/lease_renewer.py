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
# Of all lanes of a run together: a tenth of what one prefix of S3 answers.
CANCEL_LOOKS_PER_S = 500.0


def cancel_look_s(lanes: float, lease_s: float, *, is_idle: bool = False) -> float:
    """Return how often a lane in a remote store looks for CANCEL, in seconds from look to look.

    Every second, as `runs cancel` promises, as long as all `lanes` together ask no more often than
    `CANCEL_LOOKS_PER_S`; with more of them less often, but as often as leases are renewed. An idle
    lane looks every 3 s.
    """
    renewal_s = lease_s / RENEWALS
    usual_s = IDLE_LOOK_FOR_CANCEL_S if is_idle else min(LOOK_FOR_CANCEL_S, renewal_s)
    return max(usual_s, min(lanes / CANCEL_LOOKS_PER_S, renewal_s))


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
        looked = time.monotonic()
        due = looked + every_s
        is_cancelled = False
        while True:
            now = time.monotonic()
            # A lane that is idle now may have a shard in a second.
            wake = min(due, looked + self.look_after_s(), now + LOOK_FOR_CANCEL_S)
            if self._ended.wait(max(0.0, wake - now)):
                return
            now = time.monotonic()
            if now >= looked + self.look_after_s():
                looked = now
                if not is_cancelled and self._is_cancelled():
                    is_cancelled = True
                    self._cancelled()
            if now < due:
                continue
            due = time.monotonic() + every_s
            self._claims.renew()
            with suppress(EvalError):
                # Seen early, the claims of a dead lane have expired when this one has time.
                self._claims.look_at_claims()

    def look_after_s(self) -> float:
        """Return how many seconds after its last look the lane looks for CANCEL again."""
        claims = self._claims
        if not self._run.store.is_remote:
            return min(LOOK_FOR_CANCEL_S, claims.lease_s / RENEWALS)
        return cancel_look_s(claims.busy_lanes, claims.lease_s, is_idle=not claims.claimed)

    def _is_cancelled(self) -> bool:
        with suppress(EvalError):
            return self._run.is_cancel_requested()
        return False
