"""The budget: nothing beyond it, nearly all of it, and nobody waits for what cannot come."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from evalcore.execution.budget import (
    Grant,
    RunBudget,
    Spent,
    TokenDemand,
    TokenPrice,
    demand_of,
)
from evalcore.execution.limits import highest_price
from evalcore.model.exchange import Endpoint, Request, SkippedError

PRICE = TokenPrice(input=1.0, output=2.0)
ENDPOINT = Endpoint("openai", "m", "http://localhost/v1")


async def reserve(budget: RunBudget, demand: TokenDemand, places: int = 10) -> Grant:
    grant = budget.try_reserve(demand, places)
    return await budget.reserve(demand, places) if grant is None else grant


async def spend_all(budget: RunBudget, demand: TokenDemand, *, workers: int, random: Random) -> int:
    """Ask until there is nothing left; return how many calls were made. Answers vary in length."""
    made = 0
    over = False

    async def work() -> None:
        nonlocal made, over
        while not over:
            try:
                grant = await reserve(budget, demand, workers)
            except SkippedError:
                over = True
                return
            answer = min(random.randint(20, 60), grant.output_tokens or 60)
            await asyncio.sleep(0)
            cost = (demand.input_tokens // 4 * PRICE.input + answer * PRICE.output) / 1e6
            budget.settle(grant, Spent(cost, demand.input_tokens // 4 + answer), answer)
            made += 1

    await asyncio.gather(*(work() for _ in range(workers)))
    return made


@pytest.mark.parametrize("bound", [100, 4_000, None], ids=["bounded", "generous", "unbounded"])
@pytest.mark.parametrize("workers", [1, 50, 400])
def test_tokens_are_never_exceeded_and_nearly_all_spent(workers: int, bound: int | None) -> None:
    budget = RunBudget(max_tokens=50_000)
    demand = TokenDemand(100, bound, TokenPrice())
    made = asyncio.run(spend_all(budget, demand, workers=workers, random=Random(workers)))
    assert 45_000 <= budget.spent.tokens <= 50_000
    assert made > 500


@pytest.mark.parametrize("workers", [1, 50, 400])
def test_dollars_are_never_exceeded_and_nearly_all_spent(workers: int) -> None:
    budget = RunBudget(max_cost_usd=0.1)
    demand = TokenDemand(100, None, PRICE)
    asyncio.run(spend_all(budget, demand, workers=workers, random=Random(workers)))
    assert 0.09 <= budget.spent.cost_usd <= 0.1


def test_a_call_waits_for_what_running_calls_leave() -> None:
    async def scenario() -> Grant:
        budget = RunBudget(max_tokens=1_000)
        demand = TokenDemand(100, 700, TokenPrice())
        first = await reserve(budget, demand)
        assert budget.try_reserve(demand, 10) is None
        second = asyncio.create_task(budget.reserve(demand, 10))
        await asyncio.sleep(0)
        assert not second.done()
        budget.settle(first, Spent(0.0, 150), 50)
        return await second

    grant = asyncio.run(scenario())
    assert (grant.output_tokens, grant.shared) == (700, False)


def test_what_nothing_running_can_free_is_skipped() -> None:
    budget = RunBudget(max_tokens=100)
    with pytest.raises(SkippedError, match="0 of 100 tokens") as caught:
        budget.try_reserve(TokenDemand(101, 1, TokenPrice()), 10)
    assert caught.value.kind == "budget"


def test_a_cancelled_call_holds_nothing() -> None:
    async def scenario() -> Grant:
        budget = RunBudget(max_tokens=1_000)
        demand = TokenDemand(100, 700, TokenPrice())
        first = await reserve(budget, demand)
        cancelled = asyncio.create_task(budget.reserve(demand, 10))
        third = asyncio.create_task(budget.reserve(demand, 10))
        await asyncio.sleep(0)
        budget.settle(first, Spent(0.0, 100), 50)  # handed to the second, which is cancelled
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        return await asyncio.wait_for(third, 60)

    assert asyncio.run(scenario()).tokens == 800


def test_the_last_call_gets_what_is_left() -> None:
    budget = RunBudget(max_tokens=1_000)
    grant = budget.try_reserve(TokenDemand(100, None, TokenPrice()), 10)
    assert grant is not None
    assert (grant.output_tokens, grant.shared) == (900, True)


def test_what_earlier_processes_spent_counts() -> None:
    budget = RunBudget(max_cost_usd=1.0, spent=Spent(0.999999, 10))
    with pytest.raises(SkippedError, match=r"0\.999999 of 1 US dollars"):
        budget.try_reserve(TokenDemand(1, 1, PRICE), 10)


def test_a_call_reserves_the_bytes_of_its_input_and_its_bound() -> None:
    message = {"role": "user", "content": "é" * 50}
    parameters = {"max_tokens": 7, "n": 2}
    demand = demand_of(Request(ENDPOINT, "m", (message,), parameters), PRICE)
    assert demand.input_tokens >= 100
    budget = RunBudget(max_cost_usd=1.0, max_tokens=10_000)
    grant = budget.try_reserve(demand, 10)
    assert grant is not None
    assert grant.tokens == demand.input_tokens + 14
    assert grant.cost_usd == pytest.approx((demand.input_tokens + 28) / 1e6)


def test_what_is_given_back_is_asked_for_again_before_a_call_is_skipped() -> None:
    async def scenario() -> Grant:
        budget = RunBudget(max_tokens=1_000, shared=True)
        budget.allow(Spent(tokens=1_000), Spent(), final=True)
        asked: list[int] = []
        budget.ask = lambda: asked.append(1)
        assert budget.position(returns=True).allowance == Spent()
        demand = TokenDemand(100, 100, TokenPrice())
        assert budget.try_reserve(demand, 1) is None
        waiting = asyncio.create_task(budget.reserve(demand, 1))
        await asyncio.sleep(0)
        assert asked
        budget.allow(Spent(tokens=200), Spent(), final=False)
        return await waiting

    assert asyncio.run(scenario()).tokens == 200


@pytest.mark.parametrize(
    ("own", "kinds", "price"),
    [
        ({}, (), TokenPrice(1.0, 2.0)),
        ({"reasoning": 5.0, "cache_write": 9.0}, (), TokenPrice(1.0, 5.0)),
        ({"cache_write": 9.0, "cache_read": 0.1}, ("cache_write_tokens",), TokenPrice(9.0, 2.0)),
        (
            {"cache_write": 1.5, "cache_write_1h": 3.0},
            ("cache_write_tokens", "cache_write_1h_tokens"),
            TokenPrice(3.0, 2.0),
        ),
        ({"output_audio": 8.0}, ("output_audio_tokens",), TokenPrice(1.0, 8.0)),
    ],
    ids=["plain", "reasoning", "cache", "cache-1h", "audio"],
)
def test_a_call_is_reserved_at_the_dearest_kind_of_its_tokens(
    own: dict[str, float], kinds: tuple[str, ...], price: TokenPrice
) -> None:
    prices = {"tiny": {"input": 1.0, "output": 2.0, **own}}
    assert highest_price("tiny", "openai", prices, kinds) == price
