"""Whether a run that says it is running has lost its processes."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from evalcore.errors import ObjectNotFoundError
from evalcore.execution.lanes.claims import Lease, decode_lease, unfinished_claims
from evalcore.execution.lanes.processes import is_dead
from evalcore.model.run import Manifest, State
from evalcore.storage.runs import StoredRun

_LEASES: Final = 3
# Clocks of the store and of this machine may differ.
_CLOCK_S: Final = 60.0
# A process on another machine that works alone writes nothing while its shard runs.
_ALONE_S: Final = 900.0


def is_interrupted(run: StoredRun, manifest: Manifest, *, now: datetime) -> bool:
    """Whether no process executes the run any more although nothing has ended it.

    Known for a process of this machine. For others: three leases and a minute without a renewal,
    or 15 minutes without any object of the run for those that work alone.
    """
    if manifest.state is not State.RUNNING:
        return False
    leases = _open_leases(run)
    processes = [is_dead(lease.process) if lease.process else None for lease in leases]
    if leases and all(processes):
        return True
    if False in processes:
        return False
    renewed = [lease.lease_s for lease in leases if lease.lease_s]
    limit_s = _LEASES * min(renewed) + _CLOCK_S if renewed else _ALONE_S
    changes = [info.modified_at for info in run.store.list(run.keys.folder)]
    return bool(changes) and now - max(changes) > timedelta(seconds=limit_s)


def _open_leases(run: StoredRun) -> list[Lease]:
    """Return the leases of the shards without a result; of the last shard if all have theirs."""
    shards = [int(shard) for shard in unfinished_claims(run)] or sorted(run.claimed_shards())[-1:]
    leases = []
    for shard in shards:
        with suppress(ObjectNotFoundError):
            leases.append(decode_lease(run.store.get(run.keys.claim(shard)).data))
    return leases
