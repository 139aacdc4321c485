"""What is read of a run whose shards all have results, before its rows: all of it at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from evalcore.errors import RunConflictError
from evalcore.execution.lanes.claims_history import history_of, read_claims
from evalcore.model.run import Manifest
from evalcore.pipeline.plan import iso_time
from evalcore.planning.shards import pending_shards
from evalcore.storage.runs import StoredRun
from evalcore.storage.transfers import at_once

if TYPE_CHECKING:
    from evalcore.execution.lanes.claims import Lease
    from evalcore.execution.stored_shards import ShardReceipt


class CompleteRun(NamedTuple):
    """A run, what stands in its claims, and whether its suite has labels of people."""

    run: StoredRun
    manifest: Manifest
    claims: Mapping[int, Lease]
    has_labels: Callable[[], bool]


def read_complete(run: StoredRun, receipts: Sequence[ShardReceipt]) -> CompleteRun:
    """Read the run; raise `RunConflictError` if shards are missing.

    Claims that are as the `receipts` of this process have them are not read again.
    """
    own_claims = {receipt.shard: receipt.claim for receipt in receipts if receipt.claim is not None}
    with at_once(run.store) as starts:
        written = starts(run.written_shards)
        claims = starts(lambda: read_claims(run, own_claims))
        has_labels = starts(run.has_labels)
        manifest = run.manifest()
        missing = pending_shards(manifest.plan, written())
        if missing:
            raise RunConflictError(
                f"run {run.run_id} is not complete: {len(missing)} of {manifest.plan.shards} "
                f"shards have no result; `evalcore run --resume {run.run_id}` executes them"
            )
        return CompleteRun(run, manifest, claims(), has_labels)


def history_facts(complete: CompleteRun, receipts: Sequence[ShardReceipt]) -> dict[str, Any]:
    """Return what the store alone knows of the execution, of all processes that took part."""
    run, plan = complete.run, complete.manifest.plan
    history = history_of(plan, complete.claims)
    facts: dict[str, Any] = {"reexecuted": history.reexecuted}
    if len(receipts) < plan.shards:
        commits = [info.modified_at for info in run.store.list(run.keys.results_prefix)]
        facts["last_shard_committed_at"] = iso_time(max(commits))
        if history.first_started_at is not None:
            started = datetime.fromtimestamp(history.first_started_at, UTC)
            facts["first_shard_started_at"] = iso_time(started)
    return facts
