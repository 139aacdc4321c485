"""Whether the workers of a run, wherever they are, show a sign of life."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from evalcore.errors import RunGoneError, StalledError, StoreError
from evalcore.execution.lanes.claims import unfinished_claims
from evalcore.mistakes.wording import counted
from evalcore.planning.shards import pending_shards
from evalcore.storage.runs import StoredRun

Clock = Callable[[], float]

_LOOKS = 6


class Silence:
    """Raises `StalledError` once no result came and no claim changed for `stall_s`.

    A worker that lives renews its claims, three times in `lease_s`, also while its items wait.
    The error says with `waits_for` what there is to begin a shard, by default the command that
    starts a worker.
    """

    def __init__(
        self,
        run: StoredRun,
        stall_s: float,
        lease_s: float,
        clock: Clock = time.monotonic,
        waits_for: Callable[[], str] | None = None,
    ) -> None:
        self._run = run
        self._waits_for = waits_for
        self._after_s = max(stall_s, lease_s)
        self._clock = clock
        self._items = 0
        self._claims: dict[str, str] = {}
        self._since = self._looked = clock()

    def note_items(self, items: int) -> bool:
        """Note how many items have their results; return whether these are more than before."""
        more = items > self._items
        if more:
            self._items, self._since = items, self._clock()
        return more

    def check(self, stop: Callable[[], None]) -> None:
        """Look for signs of life; without any for too long call `stop`, then raise."""
        now = self._clock()
        # Results are signs enough; claims are looked at when there are none.
        if now - max(self._since, self._looked) < self._after_s / _LOOKS:
            return
        self._looked = now
        claims = self._claims
        with suppress(StoreError):
            claims = unfinished_claims(self._run)
        if claims != self._claims:
            self._claims, self._since = claims, now
        elif now - self._since >= self._after_s:
            stop()
            raise StalledError(self._run.run_id, self._after_s, self._described())

    def _described(self) -> str:
        try:
            plan = self._run.manifest().plan
            claimed = len(unfinished_claims(self._run))
            pending = len(pending_shards(plan, self._run.written_shards()))
        except RunGoneError:
            return "its manifest is no longer in the store"
        except StoreError as error:
            return f"the store does not answer ({error})"
        what = f"{pending} of {counted(plan.shards, 'shard')} without a result"
        if not claimed:
            command = f"evalcore worker {self._run.run_id} --store {self._run.store.url}"
            hint = command if self._waits_for is None else self._waits_for()
            return f"{what}, and no worker has begun one ({hint})"
        return f"{what}, and the workers that have begun {claimed} of them are silent"
