"""Make a damaged run one that can be resumed: its bad parts are set aside, never thrown away."""

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
    return shards


def _set_aside(run: StoredRun, shard: int) -> None:
    try:
        data = run.store.get(run.keys.result(shard)).data
    except ObjectNotFoundError:
        return
    # By its content: what is damaged twice is kept twice.
    digest = hashlib.sha256(data).hexdigest()[:16]
    run.store.put_if_absent(run.keys.damaged_part(shard, digest), data)
    run.store.delete(run.keys.result(shard))
