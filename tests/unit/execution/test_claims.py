"""Claims: who gets a shard, and when it may be taken from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from evalcore.execution.lanes.claims import Claims, decode_lease

from evalcore.model.run import Plan
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun, open_run

RUN = "20260518T100000Z-0a1b2c"
PLAN = Plan(4, 4, 1, 1, shards=1, shard_size=4, parts=1, part_cases=4)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    return open_run(LocalStore(tmp_path), "claims", RUN)


def lanes(run: StoredRun, clock: Clock, plan: Plan = PLAN) -> tuple[Claims, Claims]:
    first = Claims(run, "first", plan, lease_s=10, clock=clock)
    return first, Claims(run, "second", plan, lease_s=10, clock=clock)


@pytest.mark.parametrize(
    ("waited_s", "renewed", "taken"), [(19.0, False, None), (20.0, False, 0), (20.0, True, None)]
)
def test_a_claim_is_taken_over_after_two_leases_without_a_renewal(
    run: StoredRun, waited_s: float, renewed: bool, taken: int | None
) -> None:
    clock = Clock()
    first, second = lanes(run, clock)
    assert (first.claim_next(), second.claim_next()) == (0, None)
    clock.now += waited_s
    if renewed:
        first.renew()
    assert second.claim_next() == taken
    attempt = decode_lease(run.store.get(run.keys.claim(0)).data).attempt
    assert attempt == (1 if taken is None else 2)
    assert first.renew() == (() if taken is None else (0,))


class Meanwhile(LocalStore):
    """A store where something happens just before the next compare-and-swap."""

    happens: Callable[[], object] | None = None

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return super().compare_and_swap(key, data, etag)


def test_a_holder_that_renews_at_the_last_moment_keeps_its_claim(tmp_path: Path) -> None:
    store, clock = Meanwhile(tmp_path), Clock()
    first, second = lanes(open_run(store, "claims", RUN), clock)
    assert (first.claim_next(), second.claim_next()) == (0, None)
    clock.now += 20
    store.happens = first.renew
    assert second.claim_next() is None
    assert (first.renew(), first.claimed) == ((), (0,))


def test_a_shard_that_is_committed_at_the_last_moment_was_begun_once(tmp_path: Path) -> None:
    store, clock = Meanwhile(tmp_path), Clock()
    run = open_run(store, "claims", RUN)
    first, second = lanes(run, clock)
    assert (first.claim_next(), second.claim_next()) == (0, None)
    clock.now += 20
    store.happens = lambda: store.put_if_absent(run.keys.result(0), b"rows")
    assert second.claim_next() is None
    assert second.claimed == ()
    assert decode_lease(store.get(run.keys.claim(0)).data).attempt == 1


def test_a_holder_with_a_longer_lease_is_waited_for(run: StoredRun) -> None:
    clock = Clock()
    patient = Claims(run, "patient", PLAN, lease_s=60, clock=clock)
    _, hasty = lanes(run, clock)
    assert (patient.claim_next(), hasty.claim_next()) == (0, None)
    clock.now += 119
    assert hasty.claim_next() is None
    clock.now += 1
    assert hasty.claim_next() == 0


def test_in_order_the_earliest_shard_that_can_be_claimed_is_the_next(run: StoredRun) -> None:
    plan, clock = replace(PLAN, items=8, shards=8, shard_size=1), Clock()
    first, second = (
        Claims(run, name, plan, lease_s=10, in_order=True, clock=clock)
        for name in ("first", "second")
    )
    claimed = [claims.claim_next() for claims in (first, second, second, first)]
    assert claimed == [0, 1, 2, 3]
    clock.now += 20
    first.renew()
    third = Claims(run, "third", plan, lease_s=10, in_order=True, clock=clock)
    assert third.claim_next() == 4
    clock.now += 20
    first.renew()
    assert [third.claim_next() for _ in range(3)] == [1, 2, 5]


def test_of_an_unsettled_plan_only_the_pilot_can_be_claimed(run: StoredRun) -> None:
    plan = replace(PLAN, items=8, shards=3, shard_size=2, pilot=4, settled=False)
    first, second = lanes(run, Clock(), plan)
    assert (first.claim_next(), second.claim_next()) == (0, None)
    second.settle(replace(plan, settled=True))
    assert {second.claim_next(), second.claim_next()} == {1, 2}
