"""What the claims of a run tell when it ends: what was executed again, and since when."""

from __future__ import annotations

from typing import NamedTuple

from evalcore.execution.lanes.claims import read_lease
from evalcore.execution.lanes.started_items import count_restarted
from evalcore.model.run import Plan
from evalcore.storage.runs import StoredRun
from evalcore.storage.transfers import transfer


class ClaimsHistory(NamedTuple):
    """What the claims of a run tell: items executed again, and when the first shard was begun."""

    reexecuted: int
    first_started_at: float | None


def read_history(run: StoredRun, plan: Plan) -> ClaimsHistory:
    """Return what the claims tell of a run. Times in seconds since the epoch.

    Of a run whose processes noted the items that they began, those begun again count; else each
    beginning of a shard after its first counts all of its items.
    """
    shards = sorted(run.claimed_shards())
    leases = list(transfer(run.store, lambda shard: read_lease(run, shard), shards))
    again = sum(
        (lease.attempt - 1) * len(plan.shard_items(shard))
        for shard, lease in zip(shards, leases, strict=True)
        if shard < plan.shards
    )
    if again:
        noted = count_restarted(run, plan.items)
        again = again if noted is None else noted
    started = [lease.started_at for lease in leases if lease.started_at]
    return ClaimsHistory(again, min(started, default=None))
