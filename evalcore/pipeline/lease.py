"""The lease of a run: which process coordinates it, and which shards are in flight.

`lease.json` in the run's folder is changed by compare-and-swap only. Each takeover raises the
epoch, which travels with every call; the holder renews it, so that another machine can tell a dead
holder from a slow one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import orjson

from evalcore.errors import EvalError, ExitCode, ObjectNotFoundError, RunConflictError, StoreError
from evalcore.model.run import Manifest, Plan, State
from evalcore.model.sighting import Sighting
from evalcore.storage.layout import iso_time
from evalcore.storage.runs import StoredRun
from evalcore.storage.store import swap
from evalcore.trust.processes import ProcessId, is_alive, this_process

LOOK_S: Final = 2.0
"""How often (seconds) processes look for CANCEL, and those that do not coordinate at the lease."""
_RENEWALS: Final = 4
_LEASES: Final = 2
# Clocks of the store and of this machine may differ.
_CLOCK_S: Final = 60.0
_ALONE_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Lease:
    """What stands in `lease.json`.

    `host`, `boot_id`, `pid` and `started` name the holder. `in_flight` are the shards that it has
    handed out and that had no result then. `deaths` says how many processes died while they had a
    shard. `repeated` is how many items were executed again after a death, `began` when the first
    process took the lease. Times are ISO 8601.
    """

    epoch: int
    host: str
    boot_id: str
    pid: int
    started: float
    lease_s: float
    renewed: str
    released: bool = False
    in_flight: tuple[int, ...] = ()
    deaths: Mapping[int, int] = field(default_factory=dict)
    repeated: int = 0
    began: str = ""
    schema: int = 1

    @property
    def holder(self) -> ProcessId:
        """The process that took it last."""
        return ProcessId(self.host, self.boot_id, self.pid, self.started)

    def encoded(self) -> bytes:
        """Return the object's content."""
        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
        return orjson.dumps(self, option=options)

    def after_death(self, shards: Sequence[int], plan: Plan) -> Lease:
        """Return the lease when a process died that had these shards."""
        deaths = {shard: self.deaths.get(shard, 0) + 1 for shard in shards}
        items = sum(len(plan.shard_items(shard)) for shard in shards if shard < plan.shards)
        return replace(
            self,
            deaths={**self.deaths, **deaths},
            repeated=self.repeated + items,
            in_flight=tuple(shard for shard in self.in_flight if shard not in deaths),
        )


def decode_lease(data: bytes, key: str) -> Lease:
    """Return the lease in an object; raise `StoreError` if it is none."""
    from pydantic import TypeAdapter

    try:
        return TypeAdapter(Lease).validate_json(data)
    except ValueError as error:
        raise StoreError(
            f"{key} is damaged: delete it once no process executes the run any more"
        ) from error


def read_lease(run: StoredRun) -> Lease | None:
    """Return the lease as it stands; None if no process has coordinated the run yet."""
    try:
        return decode_lease(run.store.get(run.keys.lease).data, run.keys.lease)
    except ObjectNotFoundError:
        return None


class RunHeldError(RunConflictError):
    """Another process that lives coordinates the run."""

    exit_code = ExitCode.USAGE


class LeaseLostError(RunConflictError):
    """Another process has taken over the run."""


class HeldLease:
    """The lease that this process holds; a context that renews it and looks for CANCEL.

    `now` is the lease as it stands. `interrupted` is called, from a thread, when the run is to be
    cancelled or the lease is lost; `lost` is set then in the second case.
    """

    def __init__(
        self,
        run: StoredRun,
        lease: Lease,
        etag: str,
        say: Callable[[str], None],
        interrupted: Callable[[], None],
    ) -> None:
        self._run = run
        self._say = say
        self.now, self._etag = lease, etag
        self._interrupted = interrupted
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="evalcore-lease", daemon=True)
        self.lost: EvalError | None = None
        self.cancelled = False

    def begin(self, shards: Iterable[int]) -> None:
        """Note that shards are handed out, before they are; raise `LeaseLostError` if it is lost.

        If the store fails, the note is written with the next renewal.
        """
        with self._lock:
            in_flight = tuple(sorted({*shards, *self.now.in_flight}))
            if in_flight != self.now.in_flight:
                self.now = replace(self.now, in_flight=in_flight)
                with suppress(StoreError):
                    self._write(self.now)

    def end(self, shard: int) -> None:
        """Note that a shard has its result; it is written with the next change."""
        with self._lock:
            left = tuple(each for each in self.now.in_flight if each != shard)
            self.now = replace(self.now, in_flight=left)

    def note_repeated(self, shard: int, plan: Plan, *, died: bool) -> None:
        """Note that a shard's items will be executed again, because its process `died`, or left."""
        with self._lock:
            after = self.now.after_death([shard], plan)
            self._write(after if died else replace(after, deaths=self.now.deaths))

    def __enter__(self) -> HeldLease:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lease: the next coordinator does not have to wait."""
        self._ended.set()
        self._thread.join()
        if self.lost is None:
            with self._lock, suppress(EvalError):
                self._write(replace(self.now, released=True, in_flight=()))

    def _renew(self) -> None:
        renewed_at = looked_at = time.monotonic()
        is_first = True
        every_s = self.now.lease_s / _RENEWALS
        while not self._ended.wait(min(every_s, LOOK_S)):
            now = time.monotonic()
            if now - looked_at >= LOOK_S or not self._run.store.is_remote:
                looked_at = now
                self._look_for_cancel()
            if now - renewed_at < every_s:
                continue
            try:
                if is_first and not self._run.store.probe_conditional_writes():
                    self._say(
                        f"{self._run.store.url}: this server does not honour conditional writes "
                        "(If-Match), so nothing keeps a second process from executing this run at "
                        "the same time"
                    )
                with self._lock:
                    self._write(self.now)
                renewed_at, is_first = now, False
            except StoreError as error:
                # Others take over after as long; this process starts nothing more by then.
                if now - renewed_at > _LEASES * self.now.lease_s:
                    self._lose(error)
            except RunConflictError:
                return

    def _look_for_cancel(self) -> None:
        with suppress(EvalError):
            if not self.cancelled and self._run.is_cancel_requested():
                self.cancelled = True
                self._interrupted()

    def _write(self, lease: Lease) -> None:
        if self.lost is not None:
            raise self.lost
        lease = replace(lease, renewed=_now())
        store, key = self._run.store, self._run.keys.lease
        etag = store.compare_and_swap(key, lease.encoded(), self._etag)
        if etag is None:
            message = (
                f"run {self._run.run_id} was taken over by another process, because this one had "
                "not renewed its lease; what it has committed is kept"
            )
            raise self._lose(LeaseLostError(message))
        self.now, self._etag = lease, etag

    def _lose(self, error: EvalError) -> EvalError:
        self.lost = error
        self._interrupted()
        return error


def take_lease(
    run: StoredRun,
    plan: Plan,
    *,
    lease_s: float,
    first: Sequence[int],
    say: Callable[[str], None],
    interrupted: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
) -> HeldLease:
    """Return the run's lease, taken by this process; `first` are the shards it hands out at once.

    A holder that died on this machine is replaced at once. Of one elsewhere nobody knows: this
    waits, and says so, until its lease was not renewed for two of its lengths. Raises
    `RunHeldError` if the holder lives.
    """
    store, key = run.store, run.keys.lease
    leases: list[Lease] = []

    def take(data: bytes | None) -> bytes:
        now = _now()
        lease = Lease(1, *this_process(), lease_s, now, in_flight=tuple(first), began=now)
        if data is not None:
            earlier = decode_lease(data, key)
            _require_dead(run, earlier, say, clock)
            if not earlier.released:
                written = run.written_shards()
                left = [shard for shard in earlier.in_flight if shard not in written]
                earlier = earlier.after_death(left, plan)
            kept = {name: getattr(earlier, name) for name in ("deaths", "repeated", "began")}
            lease = replace(lease, epoch=earlier.epoch + 1, **kept)
        leases[:] = [lease]
        return lease.encoded()

    # Most runs are executed once: no process has held a lease before.
    stored = swap(store, key, take, seen=None)
    if stored is None:
        raise AssertionError
    return HeldLease(run, leases[0], stored.etag, say, interrupted)


def _now() -> str:
    return iso_time(datetime.now(UTC))


def _require_dead(
    run: StoredRun, lease: Lease, say: Callable[[str], None], clock: Callable[[], float]
) -> None:
    """Return once the holder of a lease is surely dead; raise `RunHeldError` if it lives."""
    if lease.released:
        return
    where, alive = f"process {lease.pid} on {lease.host}", is_alive(lease.holder)
    if alive:
        raise _held(run, where, lease)
    if alive is False:
        return
    patience_s = _LEASES * lease.lease_s
    sighting: Sighting[str] = Sighting(clock)
    say(
        f"run {run.run_id} was last executed by {where}, which renewed its lease at "
        f"{lease.renewed}; waiting {patience_s:.0f} s to see whether it still does"
    )
    while sighting.unchanged_s(lease.renewed) < patience_s:
        time.sleep(min(1.0, patience_s / 10))
        seen = read_lease(run)
        if seen is not None and seen != lease:
            if seen.released:
                return
            raise _held(run, where, seen)


def _held(run: StoredRun, where: str, lease: Lease) -> RunHeldError:
    return RunHeldError(
        f"run {run.run_id} is being executed by {where}, which renewed its lease at "
        f"{lease.renewed}: wait for its end, or stop it: evalcore runs cancel {run.run_id}"
    )


def is_interrupted(run: StoredRun, manifest: Manifest, *, now: datetime) -> bool:
    """Whether no process executes the run any more although nothing has ended it.

    Known for a process of this machine. One elsewhere is taken for dead after three lease lengths
    and a minute without a renewal, and a run without a lease after 15 minutes without any change.
    """
    if manifest.state is not State.RUNNING:
        return False
    lease = read_lease(run)
    if lease is None:
        changes = [info.modified_at for info in run.store.list(run.keys.folder)]
        return bool(changes) and (now - max(changes)).total_seconds() > _ALONE_S
    silence_s = (now - datetime.fromisoformat(lease.renewed)).total_seconds()
    if lease.released:  # its process decides the run
        return silence_s > _CLOCK_S
    alive = is_alive(lease.holder)
    return silence_s > 3 * lease.lease_s + _CLOCK_S if alive is None else not alive


class LeaseWatch:
    """Watches the lease of a run that another process coordinates, until `close`.

    `ended` is called with a reason, from a thread, when the run is to be cancelled, when another
    epoch begins, or when the lease was not renewed for two of its lengths.
    """

    def __init__(self, run: StoredRun, epoch: int, ended: Callable[[str], None]) -> None:
        self._run, self._epoch, self._call = run, epoch, ended
        self._stop = threading.Event()
        threading.Thread(target=self._watch, name="evalcore-watch", daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._stop.set()

    def _watch(self) -> None:
        sighting: Sighting[str] = Sighting()
        while not self._stop.wait(LOOK_S):
            with suppress(StoreError):
                lease = read_lease(self._run)
                if lease is None or lease.epoch != self._epoch or lease.released:
                    self._call("another process coordinates the run")
                    return
                if sighting.unchanged_s(lease.renewed) > _LEASES * lease.lease_s:
                    self._call("the process that coordinates the run renews its lease no more")
                    return
                if self._run.is_cancel_requested():
                    self._call("the run was cancelled")
                    return
