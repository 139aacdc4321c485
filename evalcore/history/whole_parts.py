"""The result parts of a run, whole: what reads its rows never reads fewer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evalcore.analytics.damage import changed_parts, describe_parts, stored_parts, suspicious_parts
from evalcore.errors import Damage, DamagedRunError, ResultsDroppedError
from evalcore.model.run import Manifest, State
from evalcore.storage.runs import StoredRun


@contextmanager
def whole_parts(run: StoredRun, manifest: Manifest) -> Iterator[dict[int, Path]]:
    """Give the files of a run's result parts by shard, in the order of the plan.

    Of a run that is not completed those that are committed. Raises `DamagedRunError` if one is
    missing from a completed run or does not hold the rows of its shard, and `ResultsDroppedError`.
    """
    plan = manifest.plan
    shards = sorted(run.written_shards() & set(range(plan.shards)))
    if manifest.state is State.COMPLETED and len(shards) < plan.shards:
        if run.are_results_dropped():
            raise ResultsDroppedError(run.run_id)
        missing = min(set(range(plan.shards)) - set(shards))
        raise DamagedRunError(run.run_id, (_no_result(missing),))
    with run.result_files(plan, shards) as parts:
        files = dict(zip(shards, parts, strict=True))
        check_parts(manifest, files)
        yield files


def check_parts(manifest: Manifest, files: Mapping[int, Path], *, thorough: bool = False) -> None:
    """Raise `DamagedRunError` unless each part has a row for each item of its shard.

    The parts of a final run are those that it ended with, byte by byte.
    """
    shards = {shard: manifest.plan.shard_items(shard) for shard in files}
    suspects: set[int] = set(files) if thorough else set()
    if manifest.parts is not None:
        try:
            now = stored_parts(files, shards)
        except FileNotFoundError as error:  # since they were listed
            deleted = [shard for shard, path in files.items() if not path.exists()]
            raise DamagedRunError(manifest.id, tuple(map(_no_result, deleted))) from error
        changed = set(changed_parts(files, now, manifest.parts))
        suspects |= changed
    else:
        changed = set()
        suspects |= set(suspicious_parts(files, shards))
    damages = describe_parts(files, shards, suspects, changed)
    if damages:
        raise DamagedRunError(manifest.id, tuple(damages))


def _no_result(shard: int) -> Damage:
    return Damage(f"shard {shard}", "has no result", shard)
