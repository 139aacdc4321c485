"""Make a run that has ended one that can be resumed: parts are set aside, never thrown away.

They are damaged, or hold items that a provider refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from evalcore.errors import Damage, DamagedRunError, ObjectNotFoundError
from evalcore.model.run import Manifest, State
from evalcore.pipeline.execute import reopen_run
from evalcore.storage.layout import reopened_key
from evalcore.storage.runs import StoredRun


def reopen_damaged(run: StoredRun, damages: Sequence[Damage]) -> tuple[int, ...]:
    """Take the damaged parts out of the results and reopen the run; return their shards.

    A copy of each part stands below `damaged/` of the run first. Stopped in between, the run is
    still one that lacks results, and the same call goes on. Raises `DamagedRunError` if executing
    shards again would not mend it; nothing is changed then.
    """
    whole = DamagedRunError(run.run_id, tuple(damages))
    if not whole.repairable:
        raise whole
    shards = tuple(damage.shard for damage in damages if damage.shard is not None)
    _reopen(run, shards)
    return shards


def reopen_refused(run: StoredRun) -> tuple[int, ...]:
    """Reopen a completed run that a provider ended (its key, its credit) for what it left out.

    Returns the shards to be executed again; none if no provider ended the run.
    """
    from evalcore.analytics.prevented import refused_shards

    manifest = run.manifest()
    if not (manifest.counts or {}).get("skipped"):
        return ()
    with run.result_files(manifest.plan) as parts:
        shards = refused_shards(parts)
    if shards:
        _reopen(run, shards)
    return shards


def _reopen(run: StoredRun, shards: Sequence[int]) -> None:
    for shard in shards:
        _set_aside(run, shard)

    def reopened(now: Manifest) -> Manifest:
        return replace(
            now, state=State.RUNNING, ended_at=None, counts=None, decision=None, parts=None
        )

    # The history does not read completed runs again, unless they are marked.
    run.store.put_if_absent(reopened_key(run.run_id), b"")
    run.update(reopened)
    reopen_run(run)


def _set_aside(run: StoredRun, shard: int) -> None:
    try:
        data = run.store.get(run.keys.result(shard)).data
    except ObjectNotFoundError:
        return
    # By its content: what is damaged twice is kept twice.
    digest = hashlib.sha256(data).hexdigest()[:16]
    run.store.put_if_absent(run.keys.damaged_part(shard, digest), data)
    run.store.delete(run.keys.result(shard))
