"""Leases of runs whose coordinators a test does not start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from evalcore.pipeline.lease import Lease
from evalcore.storage.layout import iso_time
from evalcore.storage.runs import StoredRun
from evalcore.trust.processes import ProcessId, this_process


def ended_process() -> ProcessId:
    """Return the name of a process of this machine that has ended: this number was used before."""
    return this_process()._replace(started=this_process().started - 100)


def process_elsewhere() -> ProcessId:
    """Return the name of a process of another machine."""
    return ProcessId("elsewhere.example", "its boot", 1234, 5.0)


def put_lease(run: StoredRun, holder: ProcessId, **changed: Any) -> Lease:
    """Write the lease of a run as its holder would have renewed it now; return it."""
    now = iso_time(datetime.now(UTC))
    lease = replace(Lease(1, *holder, 20.0, now, began=now), **changed)
    run.store.put(run.keys.lease, lease.encoded())
    return lease
