"""A lane that has no shard: how seldom it asks, how soon it notices what has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from evalcore.execution.lanes.claims import RENEWALS, Claims
from evalcore.execution.lanes.waiting import Waiting

from evalcore.model.run import Plan
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, open_run
from tests.support.counting_store import CountingStore

RUN = "20260518T100000Z-0a1b2c"
PLAN = Plan(4, 4, 1, 1, shards=2, shard_size=2, parts=1, part_cases=4)
LEASE_S = 20.0
FIRST_S = 1.0
# An eighth of the wait, and the jitter of the longest pause.
NOTICED_WITHIN_S = 3.75


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Idle:
    """A lane that waits for another one which has all shards, in a remote store."""

    def __init__(self, store: LocalStore, lane: str = "idle") -> None:
        self.clock = Clock()
        self.run: StoredRun = open_run(store, "waiting", RUN)
        self.other = self._claims("other")
        while self.other.claim_next() is not None:
            pass
        self.claims = self._claims(lane)
        self.waiting = Waiting(self.run, self.claims, self.clock)
        assert self.claims.claim_next() is None

    def _claims(self, lane: str) -> Claims:
        return Claims(self.run, lane, PLAN, lease_s=LEASE_S, clock=self.clock)

    def looks(self) -> Iterator[bool]:
        """Wait and look as a lane does, whose claims are looked at between; yield what is due."""
        self.waiting.is_look_due({})
        beat_at = LEASE_S / RENEWALS
        while True:
            end = self.clock.now + self.waiting.pause_s(FIRST_S)
            while beat_at <= end:
                self.clock.now = beat_at
                self.claims.look_at_claims()
                beat_at += LEASE_S / RENEWALS
            self.clock.now = end
            yield self.waiting.is_look_due({})

    def commit(self, shard: int) -> None:
        self.run.store.put(self.run.keys.result(shard), b"")
        self.other.release(shard)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path)


def test_a_lane_that_waits_asks_less_and_less_often_and_for_one_object_each_time(
    store: CountingStore,
) -> None:
    idle = Idle(store)
    store.taken()
    looks = 0
    for due in idle.looks():
        idle.other.renew()
        looks += 1
        assert not due
        if idle.clock.now > 120:
            break
    taken = store.taken()
    assert taken.pop("HEAD results") == looks
    assert looks <= 60
    assert taken.pop("LIST claims") == pytest.approx(120 / LEASE_S * RENEWALS, abs=1)
    assert "LIST results" not in taken


@pytest.mark.parametrize("lane", ["a", "b", "c", "d", "e"])  # each draws other pauses
def test_a_claim_that_is_not_renewed_is_taken_over_after_two_leases(
    store: CountingStore, lane: str
) -> None:
    idle = Idle(store, lane)
    next(due for due in idle.looks() if due)
    assert idle.claims.claim_next() is not None
    assert 2 * LEASE_S <= idle.clock.now <= 2 * LEASE_S + FIRST_S


@pytest.mark.parametrize("after_s", [3.0, 20.0, 300.0])
def test_a_lane_notices_soon_that_the_last_shard_is_committed(
    store: CountingStore, after_s: float
) -> None:
    idle = Idle(store)
    for due in idle.looks():
        idle.other.renew()
        if due:
            idle.claims.look()
            if not idle.claims.others:
                break
        if idle.clock.now >= after_s and idle.other.claimed:
            committed_at = idle.clock.now
            idle.commit(0)
            idle.commit(1)
    assert idle.clock.now - committed_at <= max(2 * FIRST_S, NOTICED_WITHIN_S)


def test_claims_that_were_abandoned_are_looked_at_at_once(store: CountingStore) -> None:
    waiting = Idle(store).waiting
    assert [waiting.is_look_due(abandoned) for abandoned in ({}, {}, {"0": "e"}, {"0": "e"})] == [
        True,
        False,
        True,
        False,
    ]


def test_a_lane_that_shares_a_folder_looks_every_second(tmp_path: Path) -> None:
    idle = Idle(LocalStore(tmp_path))
    pauses = set()
    for _ in range(60):
        pauses.add(idle.waiting.pause_s(FIRST_S))
        idle.clock.now += FIRST_S
    assert pauses == {FIRST_S}
