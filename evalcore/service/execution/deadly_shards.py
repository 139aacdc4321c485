"""The shards of a run during which processes of the service died, by the claims in the store.

A shard is begun at the same time as others twice at the most. Then it is executed alone, so that a
third death is the death of one eval: it ends in error, and the others go on.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from evalcore.execution.lanes.claims import decode_lease, unfinished_claims
from evalcore.execution.lanes.crashes import ISOLATED_AFTER_DEATHS, after_death
from evalcore.execution.lanes.processes import is_dead, this_process
from evalcore.model.run import Plan
from evalcore.storage.runs import StoredRun

_DEATH = "it ended without a result"


class DeadlyShards(NamedTuple):
    """Unfinished shards: those that are to be executed alone, and those that are not any more."""

    isolated: tuple[int, ...] = ()
    culprits: tuple[int, ...] = ()

    @property
    def shards(self) -> frozenset[int]:
        """All of them."""
        return frozenset((*self.isolated, *self.culprits))


def note_deaths(run: StoredRun, plan: Plan) -> DeadlyShards:
    """Count the death of each process that had begun a shard, once; return the deadly shards.

    A process that lives, or that has handed the run back, does not count. Raises `StoreError`.
    """
    isolated: list[int] = []
    culprits: list[int] = []
    for text in unfinished_claims(run):
        shard, key = int(text), run.keys.claim(int(text))
        stored = run.store.get(key)
        lease = decode_lease(stored.data)
        # Of a process on another machine only the end of its lease on the run is known.
        if lease.process and is_dead(lease.process) is not False:
            alone = lease.deaths >= ISOLATED_AFTER_DEATHS
            lease = after_death(lease, _DEATH, plan.shard_items(shard), isolated=alone)
            lease = lease._replace(process="")
            run.store.compare_and_swap(key, lease.encoded(), stored.etag)
        if lease.culprits:
            culprits.append(shard)
        elif lease.deaths >= ISOLATED_AFTER_DEATHS:
            isolated.append(shard)
    return DeadlyShards(tuple(isolated), tuple(culprits))


def hand_back_shards(run: StoredRun) -> None:
    """Note that this process lets go of the shards that it has begun and not committed.

    Raises `StoreError`.
    """
    process = this_process(os.getpid())
    for text in unfinished_claims(run):
        key = run.keys.claim(int(text))
        stored = run.store.get(key)
        lease = decode_lease(stored.data)
        if lease.process == process:
            lease = lease.renewed()._replace(process="")
            run.store.compare_and_swap(key, lease.encoded(), stored.etag)
