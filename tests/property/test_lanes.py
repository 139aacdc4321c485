"""Lanes as a state machine: whatever they do, each item ends in exactly one row."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from unittest import mock

import orjson
from evalcore.execution.item import run_inline
from evalcore.execution.lanes.alone import begin_alone
from evalcore.execution.lanes.claims import Claims
from evalcore.execution.open_shards import OpenShard, OpenShards, Task
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from evalcore.errors import StoreError
from evalcore.execution.item import ItemRunner, RunInputs
from evalcore.execution.shards import StoredShards
from evalcore.formats.parts.load_options import LoadOptions
from evalcore.model.mode import Mode
from evalcore.model.run import Plan, State
from evalcore.pipeline.execute import execute_run
from evalcore.pipeline.finish import finish_run
from evalcore.pipeline.plan import PlanOptions, load, plan_run
from evalcore.pipeline.states import cancel_run, reopen_run
from evalcore.storage.layout import parse_shard_key
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy
from tests.support.examples import examples
from tests.support.reports import stable_report

# A third of it is exact, too.
LEASE_S = 9.0
CASES = 7
RETRIES = "evalcore.execution.shards._LANE_RETRIES_S"


class Clock:
    """A monotonic clock that stands until somebody moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class EventfulStore(LocalStore):
    """A store where something happens just before or just after the next write of a lane."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        self._happen("before", key)
        return super().put(key, data)

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        self._happen("before", key)
        etag = super().put_if_absent(key, data)
        self._happen("after", key)
        return etag

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        self._happen("before", key)
        swapped = super().compare_and_swap(key, data, etag)
        self._happen("after", key)
        return swapped

    def _happen(self, when: str, key: str) -> None:
        what: Callable[[], object] | None = getattr(self, when)
        if what is not None and ("/claims/" in key or "/results/" in key):
            setattr(self, when, None)
            what()


class Lane:
    """A worker taken apart: what it holds, and what is on its bench."""

    def __init__(self, run: StoredRun, plan: Plan, number: int, clock: Clock) -> None:
        self.claims = Claims(run, f"lane-{number}", plan, lease_s=LEASE_S, clock=clock)
        self.claims.abandon(run.manifest().execution.get("abandoned_claims", {}))
        work = StoredShards(run, plan, claims=self.claims)
        runner = ItemRunner(run.definition, RunInputs(Path(), ImportPolicy(), Mode.LIVE))
        self.bench = OpenShards(runner, work)
        self.open: list[tuple[OpenShard, list[Task]]] = []

    def claim(self) -> int | None:
        shard = self.claims.claim_next()
        if shard is not None:
            tasks = self.bench.open(shard)
            self.open.append((tasks[0][0], tasks))
        return shard

    def finish_oldest(self) -> None:
        shard, tasks = self.open.pop(0)
        for opened, place, item in tasks:
            assert not self.bench.runner.waits(item)
            self.bench.record(opened, place, run_inline(self.bench.runner.run(item)))
        self.bench.work.commit(shard)


def plan_in(folder: Path, store: LocalStore) -> StoredRun:
    tests = [
        {
            "id": f"c{number}",
            "input": "x",
            "fixtures": {"output": "hello" if number % 3 else "bye"},
            "assertions": [{"type": "contains", "value": "hello"}],
        }
        for number in range(CASES)
    ]
    path = folder / "suite.eval.yaml"
    path.write_bytes(orjson.dumps({"name": "lanes", "tests": tests}))
    suite = load(path, LoadOptions(environment=os.environ))
    options = PlanOptions(workers=2, single_items=True)
    return plan_run(suite, store, options, now=datetime.now(UTC))


@lru_cache(maxsize=1)
def undisturbed_report() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        run = plan_in(Path(folder), LocalStore(Path(folder) / "store"))
        with finish_run(run, execute_run(run), now=datetime.now(UTC)) as view:
            return stable_report(view.json().decode())


def fail() -> None:
    raise StoreError("the store fails")


class LanesOfARun(RuleBasedStateMachine):
    """Lanes come, claim, pause, commit and die; the run is cancelled and resumed."""

    lanes: Bundle[Lane] = Bundle("lanes")

    @initialize(target=lanes, size=st.sampled_from([2, 3, 4, 7]))
    def plan(self, size: int) -> MultipleResults[Lane]:
        self.folder = Path(tempfile.mkdtemp(prefix="evalcore-lanes-"))
        self.store = EventfulStore(self.folder / "store")
        # Its shards are made smaller than anybody would plan them.
        self.run = replace(plan_in(self.folder, self.store), seal=None)
        self.shards = -(-CASES // size)
        changed = replace(self.run.manifest().plan, shard_size=size, shards=self.shards)
        self.run.update(lambda manifest: replace(manifest, plan=changed))
        self.plan_ = changed
        self.clock = Clock()
        self.count = 0
        self.alive: list[Lane] = []
        self.begun: dict[int, int] = {}
        # Who has a shard, and when that was last said; None for a process that shares nothing.
        self.holders: dict[int, tuple[Lane | None, float]] = {}
        # Claims that a resumed run has declared to be nobody's.
        self.nobodys: set[int] = set()
        self.results: dict[int, str] = {}
        return multiple(self.start_a_lane(), self.start_a_lane())

    @rule(target=lanes)
    def another_lane(self) -> Lane:
        return self.start_a_lane()

    def start_a_lane(self) -> Lane:
        self.count += 1
        lane = Lane(self.run, self.plan_, self.count, self.clock)
        self.alive.append(lane)
        return lane

    @property
    def pending(self) -> set[int]:
        return set(range(self.shards)) - self.run.written_shards()

    @rule(lane=lanes)
    def claim(self, lane: Lane) -> None:
        self.claimed(lane)

    def claimed(self, lane: Lane) -> int | None:
        """Let a lane claim a shard; return which."""
        shard = lane.claim()
        if shard is None:
            assert self.pending <= self.run.claimed_shards()
            return None
        assert shard in self.pending
        holder = self.holders.get(shard)
        # Nobody loses a claim that was renewed within two leases.
        if holder is not None and self.clock.now - holder[1] < 2 * LEASE_S:
            assert shard in self.nobodys
        self.take(shard, lane)
        return shard

    def take(self, shard: int, lane: Lane | None) -> None:
        # A claim that nobody renews has expired for whoever has looked at it for long enough.
        self.holders[shard] = (lane, -1e9 if lane is None else self.clock.now)
        self.begun[shard] = self.begun.get(shard, 0) + 1
        self.nobodys.discard(shard)

    @rule(
        lane=lanes,
        steps=st.lists(
            st.tuples(
                st.sampled_from([LEASE_S, 2 * LEASE_S, LEASE_S / 3]),
                st.sampled_from(["nothing", "renew", "commit"]),
                st.booleans(),
            ),
            min_size=1,
            max_size=4,
        ),
    )
    def watch(self, lane: Lane, steps: list[tuple[float, str, bool]]) -> None:
        """See that others have everything, and claim again and again.

        Meanwhile all others do something, before or while the claim is written.
        """
        others = [other for other in self.alive if other is not lane]
        while others and self.pending - self.run.claimed_shards():
            self.claim(others[0])
        self.claim(lane)
        does: dict[str, Callable[[Lane], object]] = {
            "renew": self.renew,
            "commit": lambda other: self.commit(other, None),
            "nothing": lambda _: None,
        }

        def others_do(what: str) -> None:
            for other in others:
                does[what](other)

        for seconds, what, meanwhile in steps:
            self.clock.now += seconds
            if meanwhile:
                self.store.before = partial(others_do, what)
            else:
                others_do(what)
            self.claim(lane)
            self.store.before = None

    @rule(lane=lanes)
    def wait_and_claim(self, lane: Lane) -> None:
        """What nobody renews is taken over, at the latest after two leases."""
        if self.claimed(lane) is None:
            self.clock.now += 2 * LEASE_S
            if self.claimed(lane) is None:
                assert not lane.claims.others

    @rule(lane=lanes)
    def renew(self, lane: Lane) -> None:
        held = set(lane.claims.claimed)
        lost = set(lane.claims.renew())
        taken = {shard for shard in held if self.holders[shard][0] is not lane}
        assert taken <= lost
        # Somebody may have touched the claim of what a third one had just committed.
        assert not (lost - taken) & self.pending
        assert set(lane.claims.claimed) == held - lost
        for shard in held - lost:
            self.holders[shard] = (lane, self.clock.now)
            self.nobodys.discard(shard)

    @rule(lane=lanes, trouble=st.sampled_from([None, "before", "after"]))
    def commit(self, lane: Lane, trouble: str | None) -> None:
        """Commit a shard; the first write may fail, or only its answer be lost."""
        if not lane.open:
            return
        number = lane.open[0][0].number
        with self.failing(trouble), mock.patch(RETRIES, (0.0,)):
            lane.finish_oldest()
        assert number not in self.pending
        assert number not in lane.claims.claimed

    @rule(lane=consumes(lanes), trouble=st.sampled_from([None, "before", "after"]))
    def die(self, lane: Lane, trouble: str | None) -> None:
        """Die at work, or while a shard is written."""
        if trouble is not None and lane.open:
            with self.failing(trouble), mock.patch(RETRIES, ()), suppress(StoreError):
                lane.finish_oldest()
        self.alive.remove(lane)

    @contextmanager
    def failing(self, when: str | None) -> Iterator[None]:
        if when is not None:
            setattr(self.store, when, fail)
        yield
        self.store.before = self.store.after = None

    @precondition(lambda self: self.run.manifest().state is State.RUNNING)
    @rule()
    def cancel(self) -> None:
        self.run.request_cancel()
        cancel_run(self.run, (), now=datetime.now(UTC))
        assert self.run.manifest().state is State.CANCELLED
        assert self.run.is_cancel_requested()

    @rule(target=lanes)
    def resume(self) -> Lane:
        """Resume the run: a new lane begins at once with whatever is left."""
        reopen_run(self.run)
        assert self.run.manifest().state is State.RUNNING
        assert not self.run.is_cancel_requested()
        self.nobodys = self.pending & self.run.claimed_shards()
        lane = self.start_a_lane()
        left = bool(self.pending)
        assert (self.claimed(lane) is not None) == left
        return lane

    @rule(place=st.integers(0, CASES))
    def work_alone_on(self, place: int) -> None:
        """A process that shares nothing takes a shard, as `run --resume` does, and dies of it."""
        shard = place % self.shards
        left = shard in self.pending
        if begin_alone(self.run, shard, 1.0):
            # Whoever held it finds out at its next renewal; nobody renews this one.
            self.take(shard, None)
        else:
            assert not left

    @invariant()
    def no_result_ever_changes(self) -> None:
        if not hasattr(self, "run"):
            return
        for info in self.store.list(self.run.keys.results_prefix):
            shard = parse_shard_key(info.key)
            assert shard is not None
            assert shard < self.shards
            assert self.results.setdefault(shard, info.etag) == info.etag

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        try:
            self.finish()
        finally:
            shutil.rmtree(self.folder)

    def finish(self) -> None:
        """Let a last lane do what is left, and look at the whole."""
        last = Lane(self.run, self.plan_, 1_000, self.clock)
        for _ in range(2 * self.shards):
            if self.claimed(last) is None:
                self.clock.now += 2 * LEASE_S
            else:
                last.finish_oldest()
        assert not self.pending
        self.no_result_ever_changes()
        with finish_run(self.run, (), now=datetime.now(UTC)) as view:
            text = view.json().decode()
        assert stable_report(text) == undisturbed_report()
        again = sum(
            (times - 1) * len(self.plan_.shard_items(shard)) for shard, times in self.begun.items()
        )
        assert orjson.loads(text)["run"]["reexecuted"] == again


TestLanesOfARun = LanesOfARun.TestCase
TestLanesOfARun.settings = examples(30, stateful_step_count=10, report_multiple_bugs=False)
