"""Follow a run that any processes execute, by what stands in its store and nothing else."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evalcore.analytics.integrity import whole_parts
from evalcore.model.run import Manifest, State
from evalcore.pipeline.lease import read_lease
from evalcore.storage.runs import StoredRun

if TYPE_CHECKING:
    from evalcore.analytics.results import Tally

# The rate is that of the last minute: a run that was resumed stood still before.
_WINDOW_S = 60.0
_LEAST_S = 0.2


@dataclass(frozen=True, slots=True)
class ShardCounts:
    """Shards of the plan: committed ones, and those that are begun and not committed."""

    total: int
    done: int
    claimed: int


@dataclass(frozen=True, slots=True)
class Watched:
    """A run at one moment. `rate` in items a second; times in seconds; None where unknown.

    `elapsed_s` is the time since the run was planned, by the clocks of the planner and of the
    watching process.
    """

    run: str
    suite: str
    state: State
    decision: str | None
    shards: ShardCounts
    items: int
    tally: Tally
    rate: float | None
    left_s: float | None
    elapsed_s: float

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state is not State.RUNNING

    def document(self) -> dict[str, Any]:
        """Return what `evalcore runs watch --json` prints."""
        return {
            "run": self.run,
            "suite": self.suite,
            "state": self.state,
            "decision": self.decision,
            "shards": asdict(self.shards),
            "items": {"total": self.items, **self.tally._asdict()},
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
        plan = manifest.plan
        written = self._run.written_shards()
        self._add(manifest, written)
        lease = read_lease(self._run)
        in_flight = set() if lease is None else {*lease.in_flight} - written
        now = self._clock()
        rate = self._rate(now, ended=manifest.state is not State.RUNNING)
        left = plan.items - self._tally.done
        return Watched(
            run=manifest.id,
            suite=manifest.suite,
            state=manifest.state,
            decision=manifest.decision,
            shards=ShardCounts(plan.shards, len(written), len(in_flight)),
            items=plan.items,
            tally=self._tally,
            rate=rate,
            left_s=left / rate if rate and manifest.state is State.RUNNING else None,
            elapsed_s=self._elapsed_s(manifest, now),
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

    def _rate(self, now: float, *, ended: bool) -> float | None:
        """Return items a second, over what was seen; at first by the times of the objects."""
        self._samples.append((now, self._tally.done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW_S:
            self._samples.popleft()
        began, done = self._samples[0]
        if not ended and self._tally.done > done and now - began >= _LEAST_S:
            return (self._tally.done - done) / (now - began)
        store, keys = self._run.store, self._run.keys
        results = [info.modified_at for info in store.list(keys.results_prefix)]
        lease = read_lease(self._run)
        if lease is None or not results:
            return None
        took_s = (max(results) - datetime.fromisoformat(lease.began)).total_seconds()
        return self._tally.done / took_s if took_s > 0 else None

    def _elapsed_s(self, manifest: Manifest, now: float) -> float:
        ended = manifest.ended_at if manifest.state is not State.RUNNING else None
        until = now if ended is None else datetime.fromisoformat(ended).timestamp()
        return max(0.0, until - datetime.fromisoformat(manifest.created_at).timestamp())


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)
