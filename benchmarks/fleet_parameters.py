"""What the simulation of a fleet is told: measured costs, the store's limits, the fleet."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from evalcore.planning.shards import PILOT_ITEMS, count_shards, most_shards, shard_size


@dataclass(frozen=True)
class Costs:
    """What was measured: seconds of one core for each item, each shard, each process; bytes."""

    plan_item_s: float
    item_s: float
    live_item_s: float
    shard_s: float
    start_s: float
    report_item_s: float
    report_s: float
    plan_bytes: float
    result_bytes: float

    def stretched(self, factor: float) -> Costs:
        """Return the costs of a worker that has less than one core."""
        return replace(
            self,
            item_s=self.item_s * factor,
            live_item_s=self.live_item_s * factor,
            shard_s=self.shard_s * factor,
            start_s=self.start_s * factor,
        )


@dataclass(frozen=True)
class StoreLimits:
    """What the store allows for one prefix, and how long a request takes."""

    puts_per_s: float = 3_500.0
    gets_per_s: float = 5_500.0
    latency_s: float = 0.05
    bytes_per_s: float = 125e6


@dataclass(frozen=True)
class Fleet:
    """A run and those who execute it.

    `latency_s` 0 is a suite of given outputs. `provider_per_s` is the limit that all workers share.
    A worker lives for an exponential time of mean `life_s` and is replaced after `restart_s`. Of
    the machines `slow_share` takes `slow_factor` times as long. `cores` are shared by all workers
    (None: each has its own). `max_shards` None are as many as a plan may have.
    """

    items: int
    workers: int
    latency_s: float = 0.0
    at_once: int = 100
    provider_per_s: float | None = None
    life_s: float | None = None
    restart_s: float = 60.0
    slow_share: float = 0.0
    slow_factor: float = 5.0
    lease_s: float = 20.0
    cores: int | None = None
    store: StoreLimits = StoreLimits()
    max_shards: int | None = None
    seed: int = 18


def pilot_s(fleet: Fleet, rate: float) -> float:
    """Return how long the pilot of a live run takes one worker."""
    pilot = max(PILOT_ITEMS, min(2 * fleet.at_once, fleet.items // 2))
    return max(pilot / rate, fleet.latency_s * math.ceil(pilot / fleet.at_once))


def shards_of(fleet: Fleet) -> list[int]:
    """Return how many items each shard of the plan has."""
    pilot = 0
    items = fleet.items
    if fleet.latency_s:
        pilot = max(PILOT_ITEMS, min(2 * fleet.at_once, items // 2))
    most = most_shards(items, single_items=False, is_instant=not fleet.latency_s)
    size = shard_size(
        items - pilot,
        concurrency=fleet.at_once,
        latency_s=fleet.latency_s,
        workers=fleet.workers,
        single_items=False,
        min_items=1_000,
        max_shards=fleet.max_shards or most,
    )
    count = count_shards(items - pilot, size)
    return [size] * (count - 1) + [items - pilot - size * (count - 1)]
