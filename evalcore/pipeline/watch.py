"""Follow a run that any processes execute, by what stands in its store and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalcore.analytics.integrity import whole_parts
from evalcore.model.run import Manifest, State
from evalcore.pipeline.lease import Lease, read_lease
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.analytics.results import Tally

# The rate is that of the last minute: a run that was resumed stood still before.
_WINDOW_S = 60.0
_LEAST_S = 0.2


@dataclass(frozen=True, slots=True)
class Watched:
    """A run at one moment. `rate` in items a second; times in seconds; None where unknown.

    `shards` are `total` of the plan, committed ones (`done`), and those that are begun and not
    committed (`claimed`). `elapsed_s` is the time since the run was planned, by the clocks of the
    planner and of the watching process.
    """

    manifest: Manifest
    shards: Mapping[str, int]
    tally: Tally
    rate: float | None
    elapsed_s: float

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.manifest.state is not State.RUNNING

    @property
    def left_s(self) -> float | None:
        """How long the rest will take at this rate."""
        left = self.manifest.plan.items - self.tally.done
        return left / self.rate if self.rate and not self.ended else None

    def document(self) -> dict[str, Any]:
        """Return what `evalcore runs watch --json` prints."""
        manifest = self.manifest
        return {
            "run": manifest.id,
            "suite": manifest.suite,
            "state": manifest.state,
            "decision": manifest.decision,
            "shards": self.shards,
            "items": {"total": manifest.plan.items, **self.tally._asdict()},
            "items_per_s": _rounded(self.rate),
            "left_s": _rounded(self.left_s),
            "elapsed_s": _rounded(self.elapsed_s),
        }


class Watch:
    """Looks at a run again and again; reads each result part once.

    `clock` gives seconds since the epoch.
    """

    def __init__(self, run: StoredRun, *, clock: Callable[[], float]) -> None:
        from evalcore.analytics.results import Tally

        self._run = run
        self._clock = clock
        self._read: set[int] = set()
        self._tally = Tally()
        self._samples: deque[tuple[float, int]] = deque()

    def follow(self, wait: Callable[[], None]) -> Iterator[Watched]:
        """Yield the run now and after each wait, until it has ended."""
        while True:
            watched = self.look()
            yield watched
            if watched.ended:
                return
            wait()

    def look(self) -> Watched:
        """Return the run as it is now."""
        # The state first: what is written before it is final is there to be read.
        manifest = self._run.manifest()
        written = self._run.written_shards()
        self._add(manifest, written)
        lease = read_lease(self._run)
        in_flight = set() if lease is None else {*lease.in_flight} - written
        ended = manifest.ended_at if manifest.state is not State.RUNNING else None
        now = self._clock() if ended is None else _seconds(ended)
        return Watched(
            manifest,
            {"total": manifest.plan.shards, "done": len(written), "claimed": len(in_flight)},
            self._tally,
            self._rate(now, lease),
            max(0.0, now - _seconds(manifest.created_at)),
        )

    def _add(self, manifest: Manifest, written: frozenset[int]) -> None:
        """Count the items of the parts that are new."""
        from evalcore.analytics.results import tally

        # A shard beyond the plan was committed while its pilot settled the plan: read next time.
        new = {shard for shard in written - self._read if shard < manifest.plan.shards}
        if not new:
            return
        with whole_parts(self._run, manifest, only=new) as parts:
            self._tally = self._tally.plus(tally([*parts.values()]))
        self._read |= new

    def _rate(self, now: float, lease: Lease | None) -> float | None:
        """Return items a second: over what was seen, at first since the run began."""
        done = self._tally.done
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()
        began, before = self._samples[0]
        if done == before or now - began < _LEAST_S:
            if lease is None or not done:
                return None
            began, before = _seconds(lease.began), 0
        return (done - before) / (now - began) if now > began else None


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)
