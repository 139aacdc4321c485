"""The note of a process that executes a run's shards alone: a claim that is not renewed."""

from __future__ import annotations

import os

from evalcore.errors import StoreError
from evalcore.execution.lanes.claims import SWAPS, Lease, WrittenLease, decode_lease
from evalcore.execution.lanes.processes import this_process
from evalcore.storage.runs import StoredRun


def begin_alone(run: StoredRun, shard: int, now: float) -> WrittenLease | None:
    """Note that a process which works alone begins a shard; return the note.

    None if the shard has been committed meanwhile. `now` in seconds since the epoch.
    """
    store, key = run.store, run.keys.claim(shard)
    process = this_process(os.getpid())
    lease = Lease("", now, process=process)
    for _ in range(SWAPS):
        if (etag := store.put_if_absent(key, lease.encoded())) is not None:
            return WrittenLease(lease, etag)
        if run.has_result(shard):
            return None
        stored = store.get(key)
        again = decode_lease(stored.data).taken_over("", 0.0)._replace(process=process)
        if (etag := store.compare_and_swap(key, again.encoded(), stored.etag)) is not None:
            return WrittenLease(again, etag)
    raise StoreError(f"{key}: the claim is changed all the time")
