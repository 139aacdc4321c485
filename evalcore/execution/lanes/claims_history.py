"""What the claims of a run tell when it ends: what was executed again, and since when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from evalcore.execution.lanes.claims import Lease, WrittenLease, list_claims, read_lease
from evalcore.model.run import Plan
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import transfer


class ClaimsHistory(NamedTuple):
    """What the claims of a run tell: items executed again, and when the first shard was begun."""

    reexecuted: int
    first_started_at: float | None


def read_claims(run: StoredRun, written: Mapping[int, WrittenLease]) -> dict[int, Lease]:
    """Return what stands in the claims of a run, by shard.

    Those that are still as this process has written them (`written`) are not read again.
    """
    etags = list_claims(run)
    changed = [
        shard
        for shard, etag in etags.items()
        if shard not in written or written[shard].etag != etag
    ]
    leases = {shard: written[shard].lease for shard in etags if shard in written}
    read = transfer(run.store, lambda shard: read_lease(run, shard), changed)
    return leases | dict(zip(changed, read, strict=True))


def history_of(plan: Plan, claims: Mapping[int, Lease]) -> ClaimsHistory:
    """Return what the claims (`read_claims`) tell of a run. Times in seconds since the epoch.

    Each beginning of a shard after its first counts all of its items.
    """
    again = sum(
        (lease.attempt - 1) * len(plan.shard_items(shard))
        for shard, lease in claims.items()
        if shard < plan.shards
    )
    started = [lease.started_at for lease in claims.values() if lease.started_at]
    return ClaimsHistory(again, min(started, default=None))
