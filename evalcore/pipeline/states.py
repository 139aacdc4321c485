"""The state of a run changes: it is cancelled, runs again, or is repaired; and who is told of it.

Damaged parts, and those with items that a provider refused, are set aside and never thrown away.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evalcore.errors import (
    Damage,
    DamagedRunError,
    ObjectNotFoundError,
    RunConflictError,
    SettingsError,
)
from evalcore.model.run import Manifest, State
from evalcore.observability.events import Observer, Observers, RunEnded, RunScope
from evalcore.pipeline.lease import HeldLease
from evalcore.redaction.redactor import PROCESS
from evalcore.settings import parse_log, read_settings
from evalcore.storage.layout import iso_time, reopened_key
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.observability.otel import Telemetry


def require_epoch(manifest: Manifest, epoch: int) -> None:
    """Raise `RunConflictError` if another process has taken the run over since `epoch`.

    The epoch is that of the run's lease, from 1.
    """
    if manifest.epoch != epoch:
        raise RunConflictError(
            f"run {manifest.id} was taken over by another process (epoch {manifest.epoch}, this "
            f"one has {epoch}): that one ends it"
        )


def cancel_run(run: StoredRun, *, now: datetime) -> Manifest:
    """Note that a run was stopped: its committed rows stay, and it can be resumed.

    A run that another process has resumed since this one read or wrote its manifest goes on.
    """
    known = run.known_manifest()

    def cancelled(current: Manifest) -> Manifest:
        # Completed by another process, meanwhile, or taken over.
        if current.state is State.COMPLETED or current.epoch != known.epoch:
            return current
        return replace(current, state=State.CANCELLED, ended_at=iso_time(now))

    manifest = run.update(cancelled)
    if manifest.state is State.CANCELLED:
        tell_end(manifest)
    return manifest


def resume_run(run: StoredRun, lease: HeldLease) -> None:
    """Make an unfinished run run again; a request to cancel it is withdrawn.

    How many items were begun by processes that died is noted.
    """
    run.store.delete(run.keys.cancel)

    def resumed(current: Manifest) -> Manifest:
        if current.state is State.COMPLETED:  # by another process, meanwhile
            return current
        facts = {**current.execution, "epoch": lease.now.epoch, "reexecuted": lease.now.repeated}
        return replace(current, state=State.RUNNING, ended_at=None, execution=facts)

    run.update(resumed)


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
    from evalcore.analytics.results import refused_shards

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


def _set_aside(run: StoredRun, shard: int) -> None:
    try:
        data = run.store.get(run.keys.result(shard)).data
    except ObjectNotFoundError:
        return
    # By its content: what is damaged twice is kept twice.
    digest = hashlib.sha256(data).hexdigest()[:16]
    run.store.put_if_absent(run.keys.damaged_part(shard, digest), data)
    run.store.delete(run.keys.result(shard))


def observer_of(manifest: Manifest) -> Observer | None:
    """Return the observer of a run in this process; None without one."""
    settings = read_settings(os.environ, Path.cwd())
    if settings.log is None and not settings.otel:
        return None
    scope = RunScope(manifest.id, manifest.suite, manifest.mode)
    observers: list[Observer] = []
    if settings.log is not None and (log := parse_log(settings.log)) is not None:
        from evalcore.observability.log import LogObserver

        observers.append(LogObserver(scope, *log))
    if settings.otel:
        observers.append(_import_telemetry().observer(scope))
    return Observers(observers) if observers else None


def _import_telemetry() -> Telemetry:
    """Return the process's telemetry; raise `SettingsError` if what it needs is not installed."""
    try:
        from evalcore.observability.otel import telemetry
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"EVALCORE_OTEL: {error.name} is not installed: `pip install "
            "'evalcore-pipeline[otel]'` (or `uv sync --extra otel`); EVALCORE_OTEL=0 "
            "switches OpenTelemetry off"
        ) from error
    return telemetry()


def check_observers() -> None:
    """Raise `SettingsError` if an observer cannot be opened, before a run is begun."""
    if read_settings(os.environ, Path.cwd()).otel:
        _import_telemetry()


def tell_end(manifest: Manifest, cost_usd: float | None = None) -> None:
    """Tell that a run is decided, or was stopped."""
    observer = observer_of(manifest)
    if observer is None:
        return
    observer.tell(
        RunEnded(
            state=manifest.state,
            decision=manifest.decision,
            created_at=manifest.created_at,
            ended_at=manifest.ended_at or manifest.created_at,
            counts={name: int(number) for name, number in (manifest.counts or {}).items()},
            cost_usd=cost_usd,
        )
    )


def warn_on_standard_error(message: str) -> None:
    """Write a warning to standard error, without secrets and without control characters."""
    from evalcore.trust.text import sanitize_terminal

    with suppress(OSError):  # nobody reads it any more
        sys.stderr.write(f"{sanitize_terminal(PROCESS.message(message))}\n")
