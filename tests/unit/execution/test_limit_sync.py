"""The limits that processes share, step by step: whatever the order, no sum is ever exceeded."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from evalcore.errors import StoreError
from evalcore.execution.budget import (
    NOTHING_SPENT,
    Grant,
    RunBudget,
    Spent,
    TokenDemand,
    TokenPrice,
)
from evalcore.execution.rates import ProviderRates, Rates
from evalcore.execution.shared import DEAD_AFTER, SILENT_AFTER, LimitSync, decode_limits
from evalcore.model.exchange import SkippedError
from evalcore.model.suite import ProviderLimits
from evalcore.storage.layout import NameKey, RunKeys
from evalcore.storage.local import LocalStore
from evalcore.storage.runs import StoredRun

KEYS = RunKeys(NameKey("s"), "20260518T100000Z-0a0b0c")


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Process:
    """One process of a run, whose thread is moved by hand."""

    def __init__(self, run: StoredRun, clock: HandClock, **limits: Any) -> None:
        provider = {"m": ProviderLimits(**limits.pop("provider"))} if "provider" in limits else {}
        self.rates = Rates([provider], clock)
        self.budget = RunBudget(**limits, shared=True) if limits else None
        self.failures: list[StoreError] = []
        self.users: list[Any] = []
        self.sync = LimitSync(
            run,
            budget=self.budget,
            rates=self.rates,
            base=lambda: (NOTHING_SPENT, 0.0),
            failed=self.failures.append,
            clock=clock,
        )
        self.sync.join()

    @property
    def provider(self) -> ProviderRates:
        return self.rates.by_provider["m"]

    def step(self) -> None:
        self.sync.step()

    def call(self) -> bool:
        """Begin a call if the provider's limits allow one now."""
        user = self.provider.in_use()
        user.__enter__()
        assert self.provider.gate is not None
        if self.provider.gate.try_enter():
            self.users.append(user)
            return self.provider.wait_s == 0
        user.__exit__(None, None, None)
        return False

    def end_call(self) -> None:
        assert self.provider.gate is not None
        self.provider.gate.leave()
        self.users.pop().__exit__(None, None, None)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    return StoredRun(LocalStore(tmp_path), KEYS)


@pytest.mark.parametrize("seed", range(4))
def test_no_order_of_changes_lets_more_calls_through_than_a_provider_allows(
    run: StoredRun, seed: int
) -> None:
    random, clock = Random(seed), HandClock()
    most = random.choice([1, 2, 3, 5])
    processes: list[Process] = []
    calls = 0
    for _ in range(120):
        clock.now += random.uniform(0, 0.5)
        match random.randrange(10):
            case 0 if len(processes) < 5:
                processes.append(Process(run, clock, provider={"max_concurrency": most}))
            case 1 if len(processes) > 1 and not processes[-1].users:
                processes.pop().sync.leave()
            case 2 | 3 | 4 | 5 if processes:
                random.choice(processes).step()
            case 6 | 7 | 8 if processes:
                calls += random.choice(processes).call()
            case _:
                if busy := [process for process in processes if process.users]:
                    random.choice(busy).end_call()
        assert sum(len(process.users) for process in processes) <= most
    assert calls > 0


def test_every_process_gets_its_turn_where_there_are_more_processes_than_calls(
    run: StoredRun,
) -> None:
    clock = HandClock()
    processes = [Process(run, clock, provider={"max_concurrency": 1}) for _ in range(3)]

    async def scenario() -> list[int]:
        turns = [0, 0, 0]
        waiting = [asyncio.create_task(call(number, turns)) for number in range(3)]
        for _ in range(120):
            clock.now += 0.25
            for process in processes:
                process.step()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return turns

    async def call(number: int, turns: list[int]) -> None:
        provider = processes[number].provider
        assert provider.gate is not None
        while True:
            with provider.in_use():
                await provider.gate.enter()
                await asyncio.sleep(0)
                turns[number] += 1
                provider.gate.leave()

    assert all(asyncio.run(scenario()))


def test_rates_are_divided_among_the_processes_that_call(run: StoredRun) -> None:
    clock = HandClock()
    first, second, idle = (
        Process(run, clock, provider={"requests_per_minute": 60}) for _ in range(3)
    )
    with first.provider.in_use(), second.provider.in_use():
        for _ in range(3):
            for process in (first, second, idle):
                process.step()
        for process in (first, second):
            assert process.provider.requests is not None
            assert process.provider.requests.interval_s == 2.0
        assert idle.provider.is_held
        second.sync.leave()
        for process in (first, idle, first):
            process.step()
        assert first.provider.requests is not None
        assert first.provider.requests.interval_s == 1.0


def test_the_share_of_a_dead_process_is_the_others_after_it_has_stopped_by_itself(
    run: StoredRun,
) -> None:
    clock = HandClock()
    dead, living = (Process(run, clock, provider={"max_concurrency": 2}) for _ in range(2))
    with dead.provider.in_use(), living.provider.in_use():
        for process in (dead, living, dead, living):
            process.step()
        assert dead.provider.wait_s == 0
        for _ in range(SILENT_AFTER * 2 + 1):
            clock.now += 0.5
            living.step()
        assert dead.provider.wait_s > 0
        gate = living.provider.gate
        assert gate is not None
        assert gate.most == 1
        for _ in range(DEAD_AFTER * 2):
            clock.now += 0.5
            living.step()
        assert gate.most == 2
        dead.step()  # it was only paused
        assert dead.provider.is_held


def reserve(process: Process, demand: TokenDemand) -> Grant | None:
    assert process.budget is not None
    return process.budget.try_reserve(demand, 4)


def test_what_a_dead_process_was_granted_counts_as_spent(run: StoredRun) -> None:
    clock = HandClock()
    demand = TokenDemand(100, 100, TokenPrice())
    dead = Process(run, clock, max_tokens=6_400)
    assert reserve(dead, demand) is not None
    granted = decode_limits(run.store.get(KEYS.limits).data, "").billed.unsettled.tokens
    assert granted >= 200
    clock.now += 1
    living = Process(run, clock, max_tokens=6_400)
    for _ in range(30):
        clock.now += 0.5
        living.step()
    state = decode_limits(run.store.get(KEYS.limits).data, "")
    assert [each.is_dead for each in state.participants.values()] == [True, False]
    assert living.budget is not None
    assert living.budget.spent.tokens == granted


def test_a_process_gives_back_what_it_does_not_need_before_another_skips(run: StoredRun) -> None:
    clock = HandClock()
    demand = TokenDemand(100, 100, TokenPrice())
    first, second = (Process(run, clock, max_tokens=800) for _ in range(2))

    async def scenario() -> list[Grant | BaseException]:
        assert second.budget is not None
        waiting = [asyncio.create_task(second.budget.reserve(demand, 4)) for _ in range(4)]
        for _ in range(8):
            clock.now += 0.5
            await asyncio.sleep(0)
            for process in (second, first):
                process.step()
            await asyncio.sleep(0)
        return await asyncio.gather(*waiting, return_exceptions=True)

    granted = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert [type(each) for each in granted] == [Grant] * 4


def test_a_call_that_nobody_can_pay_is_skipped_by_both_processes(run: StoredRun) -> None:
    clock = HandClock()
    demand = TokenDemand(100, 1_000, TokenPrice())
    processes = [Process(run, clock, max_tokens=90) for _ in range(2)]

    async def scenario() -> list[Grant | BaseException]:
        budgets = [process.budget for process in processes if process.budget is not None]
        waiting = [asyncio.create_task(budget.reserve(demand, 4)) for budget in budgets]
        for _ in range(12):
            clock.now += 0.5
            await asyncio.sleep(0)
            for process in processes:
                process.step()
            await asyncio.sleep(0)
        return await asyncio.gather(*waiting, return_exceptions=True)

    outcomes = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert [type(each) for each in outcomes] == [SkippedError] * 2


def test_time_counts_over_processes_and_attempts(run: StoredRun) -> None:
    clock = HandClock()
    first = Process(run, clock)
    clock.now += 10
    first.step()
    second = Process(run, clock)
    clock.now += 5
    first.sync.leave()
    second.sync.leave()
    clock.now += 1_000  # nothing was at work
    third = Process(run, clock)
    clock.now += 2
    assert third.sync.elapsed_s == pytest.approx(17)


def test_a_damaged_object_is_a_clear_error(run: StoredRun) -> None:
    run.store.put(KEYS.limits, b"{}")
    with pytest.raises(StoreError, match=r"limits\.json is damaged"):
        Process(run, HandClock(), max_tokens=10)


def test_settled_amounts_of_processes_that_ended_stay(run: StoredRun) -> None:
    clock = HandClock()
    process = Process(run, clock, max_tokens=6_400)
    assert process.budget is not None
    grant = reserve(process, TokenDemand(10, 10, TokenPrice()))
    assert grant is not None
    process.budget.settle(grant, Spent(0.0, 7))
    process.sync.leave()
    state = decode_limits(run.store.get(KEYS.limits).data, "")
    assert state.billed == (Spent(0.0, 7), NOTHING_SPENT)
    assert not state.participants


class ReadOnlyStore(LocalStore):
    """A folder that takes no more changes once it is `full`."""

    full = False

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        if self.full:
            raise StoreError(f"{key}: no space left on device")
        return super().compare_and_swap(key, data, etag)


def test_a_store_that_stays_full_fails_the_run_and_nothing_more_is_granted(tmp_path: Path) -> None:
    store = ReadOnlyStore(tmp_path)
    clock = HandClock()
    process = Process(StoredRun(store, KEYS), clock, max_tokens=1_600)
    assert process.budget is not None
    demand = TokenDemand(50, 50, TokenPrice())
    assert reserve(process, demand) is not None
    store.full = True
    process.sync.start_thread()
    try:
        deadline = time.monotonic() + 60
        while not process.failures:
            clock.now += 1
            time.sleep(0.02)
            assert time.monotonic() < deadline
    finally:
        process.sync.leave()
    assert "cannot be noted" in str(process.failures[0])
    assert reserve(process, demand) is None
    state = decode_limits(store.get(KEYS.limits).data, "")
    assert state.billed.unsettled.tokens >= 100


def test_limits_that_an_earlier_version_stored_are_read() -> None:
    stored = (
        b'{"schema": 1, "settled": [0.5, 10], "assumed": [0.0, 0], "elapsed_s": 2.0, "longest": 3,'
        b' "epoch": 4, "rotation": 0, "participants": {"a": {"origin": "", "pid": 1, "sequence": 2,'
        b' "epoch": 4, "granted": [1.0, 20], "settled": [0.1, 2], "assumed": [0.0, 0],'
        b' "waits": false, "providers": ["p"], "gone": true}}}'
    )
    limits = decode_limits(stored, "limits.json")
    assert limits.participants["a"].is_dead
    assert orjson.loads(limits.encoded()) == orjson.loads(stored)
