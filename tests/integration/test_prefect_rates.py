"""Rate limits that all workers share, against a real Prefect server."""

from __future__ import annotations

import asyncio

import pytest

from evalcore.model.exchange import ProviderError
from evalcore.prefect.rate_limits import PrefectRates
from tests.support.prefect_server import PrefectServer

pytestmark = [pytest.mark.prefect, pytest.mark.slow]


def make_limit(name: str, limit: int, decay: float) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate

    wanted = GlobalConcurrencyLimitCreate(name=name, limit=limit, slot_decay_per_second=decay)
    with get_client(sync_client=True) as client:
        client.create_global_concurrency_limit(wanted)


def occupied(name: str) -> int:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return int(client.read_global_concurrency_limit_by_name(name).active_slots)


async def take(rates: PrefectRates, provider: str, number: int) -> None:
    await asyncio.gather(*(rates.take(provider, 10) for _ in range(number)))


async def given(rates: PrefectRates, provider: str, number: int, expected: int) -> int:
    """Return how many of so many requests may go out, once so many as are expected may.

    Where these are not all, two seconds more are waited for others.
    """
    requests = [asyncio.create_task(rates.take(provider, 10)) for _ in range(number)]
    async with asyncio.timeout(120):
        while sum(request.done() for request in requests) < expected:
            await asyncio.sleep(0.05)
    done, waiting = await asyncio.wait(requests, timeout=2)
    for request in waiting:
        request.cancel()
    return sum(request.exception() is None for request in done)


def test_slots_are_taken_in_blocks_and_spent_here(prefect: PrefectServer) -> None:
    make_limit("evalcore-blocks-requests", 1_000, 0.001)
    rates = PrefectRates()
    asyncio.run(take(rates, "blocks", 60))
    assert occupied("evalcore-blocks-requests") == 100
    asyncio.run(take(rates, "blocks", 40))
    assert occupied("evalcore-blocks-requests") == 100


def test_two_workers_together_get_no_more_than_the_limit(prefect: PrefectServer) -> None:
    make_limit("evalcore-shared-requests", 50, 0.001)
    first, second = PrefectRates(), PrefectRates()
    asyncio.run(take(first, "shared", 50))

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(second.take("shared", 10), 2))


@pytest.mark.parametrize(
    ("name", "decay", "expected"),
    [
        pytest.param("decaying", 20.0, 50, id="decay"),
        pytest.param("kept", 0.001, 20, id="kept"),
    ],
)
def test_slots_can_be_had_again_if_and_as_they_decay(
    prefect: PrefectServer, name: str, decay: float, expected: int
) -> None:
    make_limit(f"evalcore-{name}-requests", 20, decay)
    assert asyncio.run(given(PrefectRates(), name, 50, expected)) == expected
    assert occupied(f"evalcore-{name}-requests") <= 20


def test_without_a_limit_nothing_is_limited(prefect: PrefectServer) -> None:
    from prefect.exceptions import ObjectNotFound

    assert asyncio.run(given(PrefectRates(), "unknown", 500, 500)) == 500
    with pytest.raises(ObjectNotFound):
        occupied("evalcore-unknown-requests")


def test_a_server_that_does_not_answer_is_worth_a_retry(
    monkeypatch: pytest.MonkeyPatch, prefect: PrefectServer
) -> None:
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    settings = {PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(settings), pytest.raises(ProviderError) as caught:
        asyncio.run(take(PrefectRates(), "any", 1))
    assert caught.value.retryable
