"""What is needed later is prepared between the calls, and holds none of them up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import repeat

from evalcore.errors import StoreError
from evalcore.execution.idle_steps import IdleSteps
from tests.support.virtual_loop import VirtualLoop


def times_of_steps(processor_s: Callable[[float], float], steps: int = 3) -> list[float]:
    """Return when the steps are taken in two seconds; the thread works as the function says."""
    loop = VirtualLoop(repeat(0.0))
    taken: list[float] = []

    def work() -> Iterator[None]:
        for _ in range(steps):
            taken.append(loop.time())
            yield

    async def wait() -> None:
        IdleSteps(work(), lambda: processor_s(loop.time()))
        await asyncio.sleep(2.0)

    try:
        loop.run_until_complete(wait())
    finally:
        loop.close()
    return taken


def test_a_loop_that_waits_takes_each_step_at_its_own_time() -> None:
    taken = times_of_steps(lambda _: 0.0)
    assert len(taken) == len(set(taken)) == 3
    assert max(taken) < 0.2


def test_no_step_is_taken_as_long_as_the_loop_works() -> None:
    taken = times_of_steps(lambda now: min(now, 1.0))
    assert len(taken) == 3
    assert min(taken) >= 1.0


def test_a_loop_that_never_waits_takes_no_step() -> None:
    assert times_of_steps(lambda now: now) == []


def test_a_step_that_fails_is_the_last_one_and_says_nothing() -> None:
    loop = VirtualLoop(repeat(0.0))
    told: list[object] = []
    taken: list[float] = []

    def work() -> Iterator[None]:
        taken.append(loop.time())
        yield
        taken.append(loop.time())
        raise StoreError("there is no folder for a database")

    async def wait() -> None:
        loop.set_exception_handler(lambda _, fault: told.append(fault))
        IdleSteps(work(), lambda: 0.0)
        await asyncio.sleep(2.0)

    try:
        loop.run_until_complete(wait())
    finally:
        loop.close()
    assert len(taken) == 2
    assert told == []
