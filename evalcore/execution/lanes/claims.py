"""Claims: which worker executes which shard, how long for, and when another one may take it over.

A claim is an object beside the run's results, created by the first worker and changed by
compare-and-swap. No clocks are compared: a claim has expired for a worker that has seen it
unchanged for two lease lengths of its own monotonic clock. Claims keep workers from doing the same
work; that nothing counts twice is the commit's promise alone.
"""

from __future__ import annotations

import math
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import orjson

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.model.run import Plan
from evalcore.planning.shards import pending_shards
from evalcore.settings import DEFAULT_SETTINGS
from evalcore.storage.layout import parse_shard_key
from evalcore.storage.runs import StoredRun

LEASE_S = DEFAULT_SETTINGS.lease_s
# A holder renews three times in a lease, so that one late renewal loses nothing.
RENEWALS = 3
# Two, because observer and holder look at different moments.
EXPIRED_AFTER_LEASES = 2
SWAPS = 20


class Lease(NamedTuple):
    """What stands in a claim.

    `lane` executes the shard, as the `attempt`-th that began it; `sequence` counts renewals.
    `lease_s` 0 is a claim that is not renewed: its process runs the shards alone. `started_at`
    (seconds since the epoch) is when the shard was begun first. `deaths` counts the processes whose
    interpreter died while they executed it, the last one as `death` says; `item` is what an
    isolated shard (lanes.crashes) has begun, `culprits` are the items that are not executed any
    more. `process` is the process of a claim that is not renewed (`lanes.processes`).
    """

    lane: str
    started_at: float
    lease_s: float = 0.0
    sequence: int = 0
    attempt: int = 1
    deaths: int = 0
    death: str = ""
    item: int | None = None
    culprits: tuple[int, ...] = ()
    process: str = ""

    def encoded(self) -> bytes:
        """Return the claim's content."""
        return orjson.dumps(self._asdict())

    def renewed(self) -> Lease:
        """Return the lease a renewal later: other content, so that its ETag changes."""
        return self._replace(sequence=self.sequence + 1)

    def taken_over(self, lane: str, lease_s: float) -> Lease:
        """Return the lease of the next one to begin the shard."""
        return self._replace(
            lane=lane,
            lease_s=lease_s,
            sequence=self.sequence + 1,
            attempt=self.attempt + 1,
            item=None,
            process="",
        )


class WrittenLease(NamedTuple):
    """A lease as it stands in a claim, and the claim's ETag."""

    lease: Lease
    etag: str


def decode_lease(data: bytes) -> Lease:
    """Return what stands in a claim; what says nothing of use counts as one first attempt."""
    try:
        raw = orjson.loads(data)
        fields = {name: raw[name] for name in Lease._fields if name in raw}
        fields["culprits"] = tuple(fields.get("culprits", ()))
        return Lease(**{"lane": "", "started_at": 0.0, **fields})
    except (ValueError, TypeError):
        return Lease("", 0.0)


class Sighting(NamedTuple):
    """Another's claim: its ETag, and since when (observer's clock) it has been seen unchanged."""

    etag: str
    since: float


class Claims:
    """The claims of one lane on the shards of one run; safe in several threads.

    Of a plan that is not settled only the pilot can be claimed (`settle`). With `in_order` the
    earliest shard that can be claimed is the next; else each lane begins somewhere else, so that
    lanes seldom collide. `clock` is monotonic, in seconds. Nothing here waits: `renew` is to be
    called every `lease_s / RENEWALS`, `look_at_claims` as often, `look` as often as is wanted.
    """

    def __init__(
        self,
        run: StoredRun,
        lane: str,
        plan: Plan,
        *,
        lease_s: float = LEASE_S,
        in_order: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lane = lane
        self._in_order = in_order
        self.lease_s = lease_s
        self._run = run
        self._plan = plan
        self._clock = clock
        self._own_claims: dict[int, tuple[Lease, str]] = {}
        self._begun_shards: set[int] = set()
        self._sightings: dict[int, Sighting] = {}
        self._free: deque[int] = deque()
        self._looking = threading.Lock()
        self._lock = threading.Lock()
        self._swapping = threading.Lock()
        self._abandoned: Mapping[str, str] = {}
        # The shards without a result, as of the last `look`.
        self._pending: tuple[int, ...] | None = None
        # Of these, those that this lane has not begun.
        self.others: frozenset[int] = frozenset()

    @property
    def claimed(self) -> tuple[int, ...]:
        """The shards that this lane holds a lease on."""
        with self._lock:
            return tuple(self._own_claims)

    @property
    def busy_lanes(self) -> float:
        """About how many lanes hold claims on shards without a result, as of the last look.

        Each is taken to hold as many as this one.
        """
        with self._lock:
            own_claims = len(self._own_claims)
            return (len(self._sightings) + own_claims) / max(1, own_claims)

    def started_at(self, shard: int) -> float:
        """Return when (seconds since the epoch) this lane began a shard that it has claimed."""
        with self._lock:
            claim = self._own_claims.get(shard)
        return time.time() if claim is None else claim[0].started_at

    def lease(self, shard: int) -> Lease | None:
        """Return the lease on a shard that this lane holds."""
        with self._lock:
            claim = self._own_claims.get(shard)
        return None if claim is None else claim[0]

    def settle(self, plan: Plan) -> None:
        """Take the plan that the pilot has settled."""
        with self._looking:
            self._plan = plan
            self._pending = None
            self._free.clear()

    def look(self) -> None:
        """Note which shards are free, and which claims of others have not changed since when."""
        with self._looking:
            # Claims before results: what is listed as pending and free has no claim to be missed.
            etags = list_claims(self._run)
            pending = pending_shards(self._plan, self._run.written_shards())
            if not self._plan.settled:
                pending = pending[:1] if pending[:1] == (0,) else ()
            self._pending = pending
            self._note(etags)

    def look_at_claims(self) -> None:
        """Do as `look` does, without the results: what had none at the last look has none yet."""
        if self._pending is None:
            self.look()
            return
        with self._looking:
            self._note(list_claims(self._run))

    def _note(self, etags: Mapping[int, str]) -> None:
        now, pending = self._clock(), self._pending or ()
        with self._lock:
            mine = self._begun_shards
            sightings: dict[int, Sighting] = {}
            for shard in pending:
                if shard in etags and shard not in mine:
                    before = self._sightings.get(shard)
                    same = before is not None and before.etag == etags[shard]
                    sightings[shard] = before if same and before else Sighting(etags[shard], now)
            self._sightings = sightings
            self._free = self._rotated([shard for shard in pending if shard not in etags])
            self.others = frozenset(pending) - mine

    def _next_free(self) -> int | None:
        with self._looking:
            return self._free.popleft() if self._free else None

    def _rotated(self, shards: list[int]) -> deque[int]:
        """Return the shards from a place on that is this lane's own."""
        free = deque(shards)
        if free and not self._in_order:
            free.rotate(-(zlib.crc32(self.lane.encode()) % len(free)))
        return free

    def _expired_before_free(self) -> int | None:
        """Take over an expired shard that precedes every free one; None if order is no matter."""
        if not self._in_order:
            return None
        with self._looking:
            first_free = self._free[0] if self._free else self._plan.shards
        earlier = (shard for shard in self._expired() if shard < first_free)
        return next(filter(self._take_over, earlier), None)

    def abandon(self, etags: Mapping[str, str]) -> None:
        """Note claims (by shard, with their ETag) that a resumed run knows to be abandoned."""
        self._abandoned = etags

    def claim_next(self) -> int | None:
        """Claim a shard that is free or whose claim has expired; None if there is none just now."""
        if self._in_order or not self._free:
            self.look()
        if (shard := self._expired_before_free()) is not None:
            return shard
        while (shard := self._next_free()) is not None:
            if self.claim(shard):
                return shard
            self.look()  # another lane works here
        for shard in self._expired():
            if self._take_over(shard):
                return shard
        return None

    def claim(self, shard: int) -> bool:
        """Claim a shard that no worker has begun; False if one has."""
        lease = Lease(self.lane, time.time(), self.lease_s)
        etag = self._run.store.put_if_absent(self._run.keys.claim(shard), lease.encoded())
        if etag is not None:
            self._hold(shard, lease, etag)
        return etag is not None

    def _expired(self) -> list[int]:
        """Return the shards whose claims look expired by this lane's own lease."""
        least = self._clock() - EXPIRED_AFTER_LEASES * self.lease_s
        with self._lock:
            return [
                shard
                for shard, sighting in self._sightings.items()
                if sighting.since <= least or self._abandoned.get(str(shard)) == sighting.etag
            ]

    def expires_in_s(self) -> float:
        """Return when the first claim of another lane looks expired; infinite without claims."""
        if self._expired():
            return 0.0
        with self._lock:
            first = min((each.since for each in self._sightings.values()), default=math.inf)
        return max(0.0, first + EXPIRED_AFTER_LEASES * self.lease_s - self._clock())

    def dead_lanes(self) -> frozenset[str]:
        """Return the lanes whose claims (as of the last `look`) have expired."""
        lanes = set()
        for shard in self._expired():
            lease = read_lease(self._run, shard)
            with self._lock:
                sighting = self._sightings.get(shard)
            if sighting and self._clock() - sighting.since >= EXPIRED_AFTER_LEASES * lease.lease_s:
                lanes.add(lease.lane)
        return frozenset(lanes)

    def _take_over(self, shard: int) -> bool:
        """Replace an expired claim, if its holder's own lease says so too; False: not now."""
        with self._lock:
            sighting = self._sightings.get(shard)
        if sighting is None:
            return False
        store, key = self._run.store, self._run.keys.claim(shard)
        stored = store.get(key)
        lease = decode_lease(stored.data)
        abandoned = self._abandoned.get(str(shard)) == sighting.etag
        waited_s = self._clock() - sighting.since
        patient = abandoned or waited_s >= EXPIRED_AFTER_LEASES * lease.lease_s
        if stored.etag != sighting.etag or not patient or self._run.has_result(shard):
            return False
        new_lease = lease.taken_over(self.lane, self.lease_s)
        etag = store.compare_and_swap(key, new_lease.encoded(), sighting.etag)
        if etag is None:
            return False
        if self._run.has_result(shard):
            # Its holder has just come to an end: nothing is executed again, nothing is counted.
            store.compare_and_swap(key, lease.renewed().renewed().encoded(), etag)
            return False
        self._hold(shard, new_lease, etag)
        return True

    def take(self, shard: int) -> bool:
        """Claim a shard whose holder has died for sure; False if it needs no execution any more."""
        store, key = self._run.store, self._run.keys.claim(shard)
        for _ in range(SWAPS):
            if self._run.has_result(shard):
                return False
            stored = store.get(key)
            new_lease = decode_lease(stored.data).taken_over(self.lane, self.lease_s)
            etag = store.compare_and_swap(key, new_lease.encoded(), stored.etag)
            if etag is not None:
                self._hold(shard, new_lease, etag)
                return True
        raise StoreError(f"{key}: the claim is changed all the time")

    def note_item(self, shard: int, item: int) -> None:
        """Note in the claim of a shard that this item begins."""
        with self._swapping:
            with self._lock:
                claim = self._own_claims.get(shard)
            if claim is not None:
                self._swap(shard, claim[0].renewed()._replace(item=item), claim[1])

    def _swap(self, shard: int, lease: Lease, etag: str) -> bool:
        """Change the claim of a shard that is held; False if another lane has taken it over."""
        key = self._run.keys.claim(shard)
        swapped = self._run.store.compare_and_swap(key, lease.encoded(), etag)
        with self._lock:
            if shard not in self._own_claims:  # committed meanwhile
                return True
            if swapped is None:
                del self._own_claims[shard]
                return False
            self._own_claims[shard] = (lease, swapped)
        return True

    def _hold(self, shard: int, lease: Lease, etag: str) -> None:
        with self._lock:
            self._own_claims[shard] = (lease, etag)
            self._begun_shards.add(shard)
            self._sightings.pop(shard, None)

    def renew(self) -> tuple[int, ...]:
        """Renew every lease held; return the shards that other lanes have taken over.

        What the store refuses for another reason is tried again the next time.
        """
        lost = []
        for shard in self.claimed:
            with self._swapping, suppress(StoreError):
                with self._lock:
                    claim = self._own_claims.get(shard)
                if claim is not None and not self._swap(shard, claim[0].renewed(), claim[1]):
                    lost.append(shard)
        return tuple(lost)

    def release(self, shard: int) -> None:
        """Let go of a shard that is committed; its claim stays, as history."""
        with self._lock:
            self._own_claims.pop(shard, None)


def read_lease(run: StoredRun, shard: int) -> Lease:
    """Return what stands in the claim of a shard; an empty lease if it has none."""
    try:
        return decode_lease(run.store.get(run.keys.claim(shard)).data)
    except ObjectNotFoundError:
        return Lease("", 0.0)


def unfinished_claims(run: StoredRun) -> dict[str, str]:
    """Return the ETags of the claims on shards without a result, by shard."""
    claims, written = list_claims(run), run.written_shards()
    return {str(shard): etag for shard, etag in claims.items() if shard not in written}


def list_claims(run: StoredRun) -> dict[int, str]:
    """Return the ETags of all claims, by shard."""
    return {
        shard: info.etag
        for info in run.store.list(run.keys.claims_prefix)
        if (shard := parse_shard_key(info.key)) is not None
    }
