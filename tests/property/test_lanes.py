"""Lanes as a state machine: whatever they do, each item ends in exactly one row."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import orjson
from hypothesis import settings
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

from evalcore.execution.bench import Bench, OpenShard, Task
from evalcore.execution.claims import Claims, begin_alone
from evalcore.execution.given import Given
from evalcore.execution.item import ItemRunner
from evalcore.execution.shard import StoredShards
from evalcore.formats.options import LoadOptions
from evalcore.model.mode import Mode
from evalcore.model.run import Plan, State
from evalcore.pipeline import PlanOptions, cancel_run, finish_run, load, plan_run, reopen_run
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun
from evalcore.trust.imports import ImportPolicy

LEASE_S = 10.0
CASES = 7


class Clock:
    """A monotonic clock that stands until somebody moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Lane:
    """A worker taken apart: what it holds, and what is on its bench."""

    def __init__(self, run: StoredRun, plan: Plan, number: int, clock: Clock) -> None:
        self.claims = Claims(run, f"lane-{number}", plan, lease_s=LEASE_S, clock=clock)
        work = StoredShards(run, plan, claims=self.claims)
        runner = ItemRunner(
            run.definition,
            imports=ImportPolicy(),
            folder=Path(),
            given=Given(mode=Mode.LIVE),
        )
        self.bench = Bench(runner, work)
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
            finished = self.bench.runner.run_now(item)
            assert finished is not None
            self.bench.record(opened, place, finished)
        self.bench.work.commit(shard)


class LanesOfARun(RuleBasedStateMachine):
    """Lanes come, claim, pause, commit and die; the run is cancelled and resumed."""

    lanes: Bundle[Lane] = Bundle("lanes")

    @initialize(target=lanes, size=st.integers(2, 7))
    def plan(self, size: int) -> MultipleResults[Lane]:
        self.folder = Path(tempfile.mkdtemp(prefix="evalcore-lanes-"))
        tests = [
            {
                "id": f"c{number}",
                "input": "x",
                "fixtures": {"output": "hello" if number % 3 else "bye"},
                "assertions": [{"type": "contains", "value": "hello"}],
            }
            for number in range(CASES)
        ]
        path = self.folder / "suite.eval.yaml"
        path.write_bytes(orjson.dumps({"name": "lanes", "tests": tests}))
        store = LocalStore(self.folder / "store")
        suite = load(path, LoadOptions(environment=os.environ))
        options = PlanOptions(workers=2, single_items=True)
        self.run = plan_run(suite, store, options, now=datetime.now(UTC))
        shards = -(-CASES // size)
        from dataclasses import replace

        changed = replace(self.run.manifest().plan, shard_size=size, shards=shards)
        self.run.update(lambda manifest: replace(manifest, plan=changed))
        self.plan_ = changed
        self.clock = Clock()
        self.count = 0
        self.begun: dict[int, int] = {}
        self.holders: dict[int, tuple[Lane, float]] = {}
        return multiple(self.start_a_lane(), self.start_a_lane())

    @rule(target=lanes)
    def another_lane(self) -> Lane:
        return self.start_a_lane()

    def start_a_lane(self) -> Lane:
        self.count += 1
        return Lane(self.run, self.plan_, self.count, self.clock)

    @rule(lane=lanes)
    def claim(self, lane: Lane) -> None:
        written = self.run.written_shards()
        shard = lane.claim()
        if shard is None:
            return
        assert shard not in written
        holder = self.holders.get(shard)
        # Nobody loses a claim that was renewed within two leases.
        if holder is not None and self.clock.now - holder[1] < 2 * LEASE_S:
            assert self.abandoned(shard)
        self.holders[shard] = (lane, self.clock.now)
        self.begun[shard] = self.begun.get(shard, 0) + 1

    def abandoned(self, shard: int) -> bool:
        return str(shard) in self.run.manifest().execution.get("abandoned_claims", {})

    @rule(lane=lanes)
    def renew(self, lane: Lane) -> None:
        held = set(lane.claims.held)
        lost = lane.claims.renew()
        for shard in held - set(lost):
            self.holders[shard] = (lane, self.clock.now)
        for shard in lost:
            assert self.holders[shard][0] is not lane

    @rule(seconds=st.sampled_from([LEASE_S / 3, LEASE_S, 2 * LEASE_S]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(lane=lanes)
    def commit(self, lane: Lane) -> None:
        if lane.open:
            lane.finish_oldest()

    @rule(lane=consumes(lanes))
    def die(self, lane: Lane) -> None:
        lane.open.clear()

    @precondition(lambda self: self.run.manifest().state is State.RUNNING)
    @rule()
    def cancel(self) -> None:
        self.run.request_cancel()
        cancel_run(self.run, (), now=datetime.now(UTC))

    @rule()
    def resume(self) -> None:
        reopen_run(self.run)
        assert self.run.manifest().state is State.RUNNING
        assert not self.run.is_cancel_requested()

    @rule(shard=st.integers(0, CASES - 1))
    def work_alone_on(self, shard: int) -> None:
        """A process that shares nothing takes a shard, as `run --resume` does, and dies of it."""
        if shard < self.plan_.shards and begin_alone(self.run, shard, 1.0):
            self.begun[shard] = self.begun.get(shard, 0) + 1
            # Whoever held it finds out at its next renewal; nobody renews this one.
            self.holders[shard] = (Lane(self.run, self.plan_, 0, self.clock), -1e9)

    @invariant()
    def no_shard_has_two_results(self) -> None:
        if hasattr(self, "run"):
            written = self.run.written_shards()
            assert written <= set(range(self.plan_.shards))

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
        while len(self.run.written_shards()) < self.plan_.shards:
            shard = last.claim()
            if shard is None:
                self.clock.now += 2 * LEASE_S
                continue
            self.begun[shard] = self.begun.get(shard, 0) + 1
            last.finish_oldest()
        with finish_run(self.run, (), now=datetime.now(UTC)) as view:
            report = orjson.loads(view.json())
        counts = report["counts"]
        assert counts["planned"] == counts["completed"] == CASES
        assert counts["passed"] + counts["failed"] == CASES
        assert [len(case["items"]) for case in report["cases"]] == [1] * CASES
        assert sorted(case["id"] for case in report["cases"]) == [f"c{n}" for n in range(CASES)]
        again = sum(
            (times - 1) * len(self.plan_.shard_items(shard)) for shard, times in self.begun.items()
        )
        assert report["run"]["reexecuted"] == again


TestLanesOfARun = LanesOfARun.TestCase
TestLanesOfARun.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
