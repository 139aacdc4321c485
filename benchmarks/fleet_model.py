"""A fleet of workers on one run, as a discrete-event simulation.

It models what the code does: one process plans, workers claim shards through the store, commit
them, renew their leases and look for shards that others have lost, one process reports. Requests
wait for the limits of the store's prefix. What 10 000 workers do every second (signs of life, looks
of idle ones) is no event each, but takes its share of these limits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import simpy
from evalcore.execution.lanes.claims import EXPIRED_AFTER_LEASES, RENEWALS
from evalcore.execution.lanes.lease_renewer import cancel_look_s
from evalcore.execution.lanes.waiting import LONGEST_PAUSE_S, SHARE

from benchmarks.fleet_parameters import Costs, Fleet, StoreLimits, pilot_s, shards_of
from evalcore.planning.spool import PART_CASES

_LISTED = 1_000  # keys in an answer to a listing
_IDLE_PAUSE_S = 1.0
_ENDLESS = "shards are lost faster than they are executed"
_MOST_WALL_S = 30 * 86_400.0

Events = Generator[simpy.Event, Any, None]


class Prediction(NamedTuple):
    """Seconds of the stages, requests by kind, what was lost, and what bounds the run."""

    plan_s: float
    execute_s: float
    report_s: float
    shards: int
    requests: Counter[str]
    deaths: int
    again_items: float
    idle_share: float
    busiest_store: float
    bottleneck: str

    @property
    def wall_s(self) -> float:
        """Seconds of the whole run."""
        return self.plan_s + self.execute_s + self.report_s


class _Prefix:
    """The limits of one prefix: a request waits until those before it are through."""

    def __init__(self, env: simpy.Environment, limits: StoreLimits) -> None:
        self._env, self._limits = env, limits
        self._free_at = {"PUT": 0.0, "GET": 0.0}
        self.background = Counter[str]()
        self.requests = Counter[str]()
        self.busiest = 0.0

    def rate(self, kind: str) -> float:
        """Return what is left of a limit beside the signs of life, in requests a second."""
        limit = self._limits.puts_per_s if kind == "PUT" else self._limits.gets_per_s
        self.busiest = max(self.busiest, self.background[kind] / limit)
        # Beyond the limit all are slowed down alike.
        return max(limit - self.background[kind], limit**2 / (limit + self.background[kind]))

    def ask(self, *, puts: float = 0, gets: float = 0, lists: float = 0) -> simpy.Event:
        """Return the event that these requests, one after another, have their answers."""
        now = self._env.now
        self.requests.update({"PUT": puts, "GET": gets, "LIST": lists})
        until = now
        for kind, count in (("PUT", puts), ("GET", gets + lists)):
            if count:
                begins = max(now, self._free_at[kind])
                self._free_at[kind] = begins + count / self.rate(kind)
                until = max(until, self._free_at[kind])
        return self._env.timeout(until - now + (puts + gets + lists) * self._limits.latency_s)


@dataclass
class _Shard:
    number: int
    items: int
    lost_at: float | None = None


@dataclass
class _Run:
    """The state that the workers share: which shards are free, lost, committed."""

    fleet: Fleet
    costs: Costs
    env: simpy.Environment
    prefix: _Prefix
    shards: list[_Shard]
    random: Random
    free: set[int] = field(default_factory=set)
    committed: int = 0
    idle_s: float = 0.0
    idle_looks: float = 0.0
    cancel_looks: float = 0.0
    cancel_looks_per_s: float = 0.0
    counted_at: float = 0.0
    alive: int = 0
    deaths: int = 0
    again_items: float = 0.0
    settled: simpy.Event = field(init=False)
    # Those without a shard, and since when.
    waiting: dict[simpy.Event, float] = field(default_factory=dict)
    ended: simpy.Event = field(init=False)

    def __post_init__(self) -> None:
        self.free = {shard.number for shard in self.shards}
        self.settled, self.ended = self.env.event(), self.env.event()

    @property
    def pages(self) -> int:
        """Requests of one listing of all claims or all results."""
        return math.ceil(len(self.shards) / _LISTED)

    def wait(self) -> simpy.Event:
        """Return the event that a shard is free for a worker that has none."""
        woken = self.env.event()
        self.waiting[woken] = self.env.now
        self.count_alive(0)
        return woken

    def end_wait(self, woken: simpy.Event) -> None:
        """Note that a worker waits no more."""
        waited_s = self.env.now - self.waiting.pop(woken)
        self.idle_s += waited_s
        self.idle_looks += _looks_in(waited_s)
        self.count_alive(0)

    def count_alive(self, more: int) -> None:
        """Note that a worker has come or gone, and what all of them ask of the store."""
        self.count_cancel_looks()
        self.alive += more
        idle = len(self.waiting)
        busy = self.alive - idle
        background = self.prefix.background
        # A wait that is short has more looks; those of the fleet are minutes.
        looks = idle / LONGEST_PAUSE_S
        lease_s = self.fleet.lease_s
        self.cancel_looks_per_s = busy / cancel_look_s(busy, lease_s) + idle / cancel_look_s(
            busy, lease_s, is_idle=True
        )
        background["HEAD"] = self.cancel_looks_per_s + looks
        background["LIST"] = self.pages * self.alive * RENEWALS / self.fleet.lease_s
        background["GET"] = background["HEAD"] + background["LIST"] + looks
        background["PUT"] = busy * RENEWALS / self.fleet.lease_s

    def count_cancel_looks(self) -> None:
        """Count the looks for CANCEL since the number of workers changed last."""
        now = self.env.now
        self.cancel_looks += self.cancel_looks_per_s * (now - self.counted_at)
        self.counted_at = now

    def lose(self, shard: _Shard, done: float) -> None:
        """Note that a worker died in a shard: others take it over when its lease has expired."""
        self.again_items += done

        def expire() -> Events:
            yield self.env.timeout(EXPIRED_AFTER_LEASES * self.fleet.lease_s + _IDLE_PAUSE_S)
            self.free.add(shard.number)
            if self.waiting:
                next(iter(self.waiting)).succeed()

        self.env.process(expire())

    def commit(self) -> None:
        """Note a committed shard; the last one ends the execution."""
        self.committed += 1
        if self.committed == len(self.shards):
            self.ended.succeed()

    @property
    def core_share(self) -> float:
        """What a worker has of a core if all of them are busy."""
        cores = self.fleet.cores
        return 1.0 if cores is None else min(1.0, cores / self.fleet.workers)

    def items_per_s(self, speed: float) -> float:
        """Return what a worker executes in a second: its calls, its core, its part of a limit."""
        fleet, share = self.fleet, self.core_share
        if not fleet.latency_s:
            return speed * share / self.costs.item_s
        rate = speed * min(fleet.at_once / fleet.latency_s, share / self.costs.live_item_s)
        if fleet.provider_per_s is not None:
            callers = max(1, self.alive - len(self.waiting))
            rate = min(rate, fleet.provider_per_s / callers)
        return rate


def _looks_in(waited_s: float) -> float:
    """Return how often a worker looks that waits so long: seldom and seldomer."""
    growing_s, constant_s = _IDLE_PAUSE_S / SHARE, LONGEST_PAUSE_S / SHARE
    looks = min(waited_s, growing_s) / _IDLE_PAUSE_S
    if waited_s > growing_s:
        looks += math.log(min(waited_s, constant_s) / growing_s) / SHARE
    return looks + max(0.0, waited_s - constant_s) / LONGEST_PAUSE_S


def _worker(run: _Run, number: int, speed: float) -> Events:
    """One place of the fleet: processes follow each other in it as machines die."""
    env, fleet, random = run.env, run.fleet, run.random
    while not run.ended.triggered:
        yield env.timeout(run.costs.start_s / speed / run.core_share)
        run.count_alive(1)
        life = env.process(_life(run, number, speed))
        if fleet.life_s is None:
            yield life
            return
        dies = env.timeout(random.expovariate(1 / fleet.life_s))
        yield life | dies
        if not life.is_alive:
            return
        life.interrupt()
        run.count_alive(-1)
        run.deaths += 1
        yield env.timeout(fleet.restart_s)


def _life(run: _Run, number: int, speed: float) -> Events:
    """A worker process: what it opens, then shard after shard."""
    env, prefix = run.env, run.prefix
    try:
        # Manifest, suite, signature, the probe of conditional writes, the first look.
        yield prefix.ask(puts=5, gets=6, lists=3 + 2 * run.pages)
    except simpy.Interrupt:
        return
    if not run.settled.triggered and run.fleet.latency_s:
        try:
            if number == 0:
                yield env.timeout(pilot_s(run.fleet, run.items_per_s(speed)))
                run.settled.succeed()
            else:
                yield run.settled
        except simpy.Interrupt:
            return
    position = run.random.randrange(len(run.shards))
    while not run.ended.triggered:
        if not run.free:
            prefix.ask(lists=2 * run.pages)
            woken = run.wait()
            try:
                yield woken
            except simpy.Interrupt:
                run.end_wait(woken)
                return
            run.end_wait(woken)
            continue
        position, collided = _next_free(run.free, (position + 1) % len(run.shards), len(run.shards))
        shard = run.shards[position]
        run.free.discard(position)
        began = env.now
        rate = run.items_per_s(speed)
        parts = math.ceil(shard.items / PART_CASES) + 1
        looks = 2 * run.pages if collided else 0
        # The shard's last items drain while the first ones of the next are called.
        drain_s = run.fleet.latency_s if not run.free else 0.0
        try:
            # Parts of the plan are read ahead: the claim, the commit and looks are waited for.
            prefix.ask(gets=parts)
            yield prefix.ask(puts=2 if collided else 1, lists=looks)
            yield env.timeout(shard.items / rate + run.costs.shard_s + drain_s)
            yield prefix.ask(puts=1)
        except simpy.Interrupt:
            run.lose(shard, min(shard.items, (env.now - began) * rate))
            return
        run.commit()


def _next_free(free: set[int], position: int, count: int) -> tuple[int, bool]:
    """Return the next free shard from a worker's own place on, and whether others took some."""
    collided = position not in free
    while position not in free:
        position = (position + 1) % count
    return position, collided


def simulate(fleet: Fleet, costs: Costs) -> Prediction:
    """Return what a run of this fleet takes and costs."""
    random = Random(fleet.seed)
    env = simpy.Environment()
    prefix = _Prefix(env, fleet.store)
    shards = [_Shard(number, items) for number, items in enumerate(shards_of(fleet))]
    run = _Run(fleet, costs, env, prefix, shards, random)
    slow = round(fleet.slow_share * fleet.workers)
    for number in range(fleet.workers):
        speed = 1 / fleet.slow_factor if number >= fleet.workers - slow else 1.0
        env.process(_worker(run, number, speed))
    env.run(until=env.any_of([run.ended, env.timeout(_MOST_WALL_S)]))
    execute_s = env.now
    return _predicted(run, execute_s)


def _predicted(run: _Run, execute_s: float) -> Prediction:
    fleet, costs, requests = run.fleet, run.costs, run.prefix.requests
    for woken in list(run.waiting):
        run.end_wait(woken)
    parts = math.ceil(fleet.items / PART_CASES)
    plan_s = costs.plan_item_s * fleet.items + parts / 16 * fleet.store.latency_s
    received = fleet.items * costs.result_bytes / fleet.store.bytes_per_s
    report_s = costs.report_s + costs.report_item_s * fleet.items
    if fleet.store.latency_s:
        report_s += received + 2 * len(run.shards) / 16 * fleet.store.latency_s
    seconds = execute_s
    busy_s = max(0.0, fleet.workers * seconds - run.idle_s)
    looks = run.idle_looks
    run.count_cancel_looks()
    longer = seconds / run.env.now if run.env.now else 1.0
    requests["HEAD"] += run.cancel_looks * longer + looks
    requests["PUT"] += busy_s * RENEWALS / fleet.lease_s
    requests["LIST"] += run.pages * fleet.workers * seconds * RENEWALS / fleet.lease_s
    requests["GET"] += looks + parts + 2 * len(run.shards)
    requests["PUT"] += parts
    # Beyond its limit the prefix answers no more than that: signs of life come later.
    read = sum(requests[kind] for kind in ("GET", "HEAD", "LIST"))
    answered = min(1.0, fleet.store.gets_per_s * seconds / read)
    for kind in ("GET", "HEAD", "LIST"):
        requests[kind] *= answered
    idle_share = run.idle_s / (fleet.workers * seconds) if seconds else 0.0
    run.prefix.rate("PUT"), run.prefix.rate("GET")
    outcome = Prediction(
        plan_s,
        execute_s,
        report_s,
        len(run.shards),
        requests,
        run.deaths,
        run.again_items,
        idle_share,
        run.prefix.busiest,
        "",
    )
    return outcome._replace(bottleneck=_bottleneck(run, outcome))


def _bottleneck(run: _Run, outcome: Prediction) -> str:
    """Return what would have to change first for the run to end earlier."""
    fleet = run.fleet
    if outcome.execute_s >= _MOST_WALL_S:
        return _ENDLESS
    if outcome.again_items > 0.2 * fleet.items:
        return "machines that die within a shard"
    if outcome.busiest_store > 1:
        return "requests to the store"
    if outcome.plan_s > max(outcome.execute_s, outcome.report_s):
        return "planning"
    if outcome.report_s > outcome.execute_s:
        return "report"
    if fleet.provider_per_s and fleet.items / fleet.provider_per_s > 0.7 * outcome.execute_s:
        return "provider"
    if fleet.workers > outcome.shards or outcome.idle_share > 0.3:
        return "shards"
    return "calls at once" if fleet.latency_s else "cores"
