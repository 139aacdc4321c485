"""The rule for the size of a shard."""

from __future__ import annotations

import pytest

from evalcore.model.run import Plan
from evalcore.planning.shards import (
    MAX_SHARD_ITEMS,
    MAX_SHARDS,
    has_single_items,
    plan_rounds,
    shard_size,
)

RULE = [
    ("twenty seconds of work", 10_000, 10, 2.0, 1, 100),
    ("four shards for each worker", 1_000, 100, 1.0, 5, 50),
    ("at most 2000 shards", 1_000_000, 1, 20.0, 1, 500),
    ("items that take no time", 2_000, 16, 0.0, 2, 250),
    ("rows stay in memory until written", 1_000_000, 400, 0.001, 1, MAX_SHARD_ITEMS),
]


@pytest.mark.parametrize(
    ("items", "concurrency", "latency_s", "workers", "expected"),
    [row[1:] for row in RULE],
    ids=[row[0] for row in RULE],
)
def test_size(items: int, concurrency: int, latency_s: float, workers: int, expected: int) -> None:
    size = shard_size(
        items, concurrency=concurrency, latency_s=latency_s, workers=workers, single_items=False
    )
    assert size == expected
    assert -(-items // size) <= MAX_SHARDS


@pytest.mark.parametrize(
    ("items", "is_instant", "shown"),
    [(500, False, True), (501, False, False), (100, True, True), (101, True, False)],
)
def test_each_item_is_a_task_of_its_own_as_long_as_a_person_can_follow(
    items: int, is_instant: bool, shown: bool
) -> None:
    assert has_single_items(items, is_instant=is_instant) is shown


def test_instant_items_of_one_process_share_a_shard() -> None:
    size = shard_size(
        1_200, concurrency=16, latency_s=0.0, workers=1, single_items=False, min_items=1_000
    )
    assert size == 1_000


@pytest.mark.parametrize("cases", [1, 7, 40, 1_000])
@pytest.mark.parametrize(("variants", "iterations"), [(1, 2), (3, 4)])
def test_rounds_hold_each_item_once_and_one_iteration_after_the_other(
    cases: int, variants: int, iterations: int
) -> None:
    items = cases * variants * iterations
    plan = plan_rounds(Plan(items, cases, variants, iterations, 1, 9, 1, 2_000))
    shards = [plan.shard_items(shard) for shard in range(plan.shards)]
    assert sorted(item for shard in shards for item in shard) == list(range(items))
    rounds = [{item % iterations for item in shard} for shard in shards]
    assert rounds == sorted(rounds, key=min)
    assert {len(each) for each in rounds} == {1}
    assert all(shard.stop - 1 == max(shard) for shard in shards)
