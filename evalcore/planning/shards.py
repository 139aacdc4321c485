"""How many work items a shard holds (docs/reference/engine.md)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from evalcore.model.run import Plan

SINGLE_ITEM_LIMIT = 500
"""Up to so many items a person looks at each of them, and a run has no pilot."""
_INSTANT_SINGLE_ITEMS = 100
# Of a run through an orchestrator: a shard is one task run there.
MAX_SHARDS = 2_000
SHARD_SECONDS = 20.0
PILOT_ITEMS = 32
# Of a round at least as many, so that several processes share it.
_ROUND_SHARDS = 16
# A shard's rows are in memory until it is committed.
MAX_SHARD_ITEMS = 5_000


def has_single_items(items: int, *, is_instant: bool) -> bool:
    """Whether an orchestrator shows each item of a run as a task of its own."""
    return items <= (_INSTANT_SINGLE_ITEMS if is_instant else SINGLE_ITEM_LIMIT)


def shard_size(
    items: int,
    *,
    concurrency: int,
    latency_s: float,
    workers: int,
    single_items: bool,
    min_items: int = 1,
) -> int:
    """Return the items of a shard, at least 1.

    `latency_s` is the median time of an item. `single_items` gives each item a shard of its own
    (`has_single_items`). Else a shard holds about twenty seconds of work, so little that each
    worker gets four shards (but at least `min_items` where items take no time) and
    `MAX_SHARD_ITEMS` at most, and there are at most `MAX_SHARDS` shards.
    """
    if single_items:
        return 1
    by_time = math.ceil(SHARD_SECONDS * concurrency / latency_s) if latency_s > 0 else items
    by_workers = max(math.ceil(items / (4 * workers)), min_items if latency_s == 0 else 1)
    bounded = min(by_time, by_workers, MAX_SHARD_ITEMS)
    return max(1, math.ceil(items / MAX_SHARDS), bounded)


def count_shards(items: int, size: int, pilot: int = 0) -> int:
    """Return how many shards hold the items: the pilot, if there is one, and those after it."""
    return bool(pilot) + math.ceil((items - pilot) / size)


def settle(plan: Plan, size: int) -> Plan:
    """Return the plan with the size that its pilot has shown to be right."""
    shards = count_shards(plan.items, size, plan.pilot)
    return replace(plan, shard_size=size, shards=shards, settled=True)


def plan_rounds(plan: Plan) -> Plan:
    """Return the plan in shards of one iteration each, of whole cases, all shards of one first."""
    cases = max(1, plan.shard_size // plan.items_per_case, -(-plan.cases // _ROUND_SHARDS))
    cases = max(min(cases, MAX_SHARD_ITEMS // plan.variants), 1)
    cases = max(cases, math.ceil(plan.cases * plan.iterations / MAX_SHARDS))
    sized = replace(plan, shard_size=cases * plan.variants, pilot=0, settled=True, by_round=True)
    return replace(sized, shards=sized.iterations * sized.round_shards)


def pending_shards(plan: Plan, written: Collection[int]) -> tuple[int, ...]:
    """Return the shards that have no result object yet, in plan order."""
    return tuple(shard for shard in range(plan.shards) if shard not in written)
