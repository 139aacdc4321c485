"""Rate limits, retries and the window of calls at once: their laws, with a clock in hand."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from evalcore.execution.limits import DEFAULT_POLICY, ProviderGate
from evalcore.execution.rates import (
    AdaptiveConcurrency,
    ConcurrencyShare,
    ProviderRates,
    Rate,
    Rates,
)
from evalcore.model.exchange import Endpoint, ErrorKind, ProviderError
from evalcore.model.suite import (
    ProviderLimits,
)
from tests.support.virtual_loop import VirtualLoop, run_virtually


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_was_left_unused_is_not_made_up_for() -> None:
    clock = HandClock()
    rate = Rate(60, clock)
    clock.now += 600
    waits = []
    for _ in range(3):
        waits.append(rate.wait_s)
        rate.take()
    assert waits == pytest.approx([0.0, 1.0, 2.0])


def call_times(limits: ProviderLimits, processes: int, calls: int, tokens: int) -> list[float]:
    """Return when the calls of processes that share a provider's limits go out."""

    async def calling(rates: ProviderRates, times: list[float]) -> None:
        for _ in range(calls):
            await rates.passed(tokens)
            times.append(asyncio.get_running_loop().time())

    async def scenario(loop: VirtualLoop) -> list[float]:
        times: list[float] = []
        shares = [ConcurrencyShare(number, processes) for number in range(processes)]
        each = [ProviderRates(limits, share, loop.time) for share in shares]
        await asyncio.gather(*(calling(rates, times) for rates in each))
        return sorted(times)

    return run_virtually(scenario, itertools.repeat(0.0))


def busiest_minute(times: list[float]) -> int:
    return max(sum(begin <= time < begin + 60 for time in times) for begin in times)


@pytest.mark.parametrize("processes", [1, 2, 5])
@pytest.mark.parametrize("per_minute", [6, 50])
def test_a_minute_has_at_most_one_request_per_further_process_beyond_the_limit(
    processes: int, per_minute: int
) -> None:
    calls = 3 * per_minute // processes
    times = call_times(ProviderLimits(requests_per_minute=per_minute), processes, calls, 1)
    assert len(times) == calls * processes
    # A clock that counts in floats may let a call out one rounding error early.
    assert busiest_minute(times) <= per_minute + processes
    # All of the rate is used.
    assert times[-1] <= 60 * len(times) / per_minute


def test_tokens_per_minute_hold_over_all_processes() -> None:
    times = call_times(ProviderLimits(tokens_per_minute=6_000), 3, 8, 500)
    assert busiest_minute(times) * 500 <= 6_000 + 3 * 500


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        pytest.param(Endpoint("openai", "mine", ""), 10, id="by-name"),
        pytest.param(Endpoint("openai", "other", ""), 20, id="by-protocol"),
        pytest.param(Endpoint("anthropic", "other", ""), None, id="none"),
    ],
)
def test_limits_are_found(endpoint: Endpoint, expected: int | None) -> None:
    async def per_minute(loop: VirtualLoop) -> int | None:
        mine = {"mine": ProviderLimits(max_concurrency=30), "openai": ProviderLimits(20, 20)}
        rates = Rates([mine, {"mine": ProviderLimits(requests_per_minute=10)}], clock=loop.time)
        found = rates.find(endpoint)
        if found is None:
            return None
        begun = loop.time()
        for _ in range(2):
            await found.passed(1)
        return round(60 / (loop.time() - begun))

    assert run_virtually(per_minute, itertools.repeat(0.0)) == expected


def test_no_call_is_made_before_the_time_that_the_provider_asks_for() -> None:
    async def scenario() -> float:
        gate = ProviderGate(time.monotonic)
        gate.note_failure(failure(ErrorKind.RATE, retry_after_s=0.05), 300.0)
        inside = []

        async def call() -> None:
            async with gate.entered():
                inside.append(gate.held_s)
                gate.note_answer()

        await asyncio.gather(*(call() for _ in range(20)))
        return max(inside)

    assert asyncio.run(scenario()) == 0


@pytest.mark.parametrize("seconds", [None, 0.0, 301.0], ids=["nothing", "0 s", "too long"])
def test_what_is_not_waited_for_holds_no_other_call(seconds: float | None) -> None:
    gate = ProviderGate(time.monotonic)
    gate.note_failure(failure(ErrorKind.RATE, retry_after_s=seconds), 300.0)
    assert gate.held_s == 0


def test_what_is_asked_for_uses_up_no_attempt() -> None:
    error = failure(ErrorKind.SERVER, retry_after_s=2.0)
    delay = DEFAULT_POLICY.delay_s(error, attempt=50, waited_s=0, silence_s=9.0, draw=lambda: 0.5)
    assert delay == 2.0


def failure(kind: ErrorKind, retry_after_s: float | None = None) -> ProviderError:
    return ProviderError(kind, "scripted", 500, retry_after_s)


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        pytest.param(ErrorKind.RATE, True, id="rate"),
        pytest.param(ErrorKind.SERVER, True, id="server"),
        pytest.param(ErrorKind.TIMEOUT, True, id="timeout"),
        pytest.param(ErrorKind.CONNECTION, True, id="connection"),
        pytest.param(ErrorKind.AUTHENTICATION, False, id="authentication"),
        pytest.param(ErrorKind.REQUEST, False, id="request"),
        pytest.param(ErrorKind.CONTENT, False, id="content"),
    ],
)
def test_only_what_may_succeed_later_is_tried_again(kind: ErrorKind, again: bool) -> None:
    delay = DEFAULT_POLICY.delay_s(
        failure(kind), attempt=1, waited_s=0, silence_s=9.0, draw=lambda: 0.5
    )
    assert (delay is not None) is again


def test_delays_double_with_full_jitter_up_to_a_bound() -> None:
    error = failure(ErrorKind.SERVER)
    policy = DEFAULT_POLICY._replace(attempts=9)
    longest = [
        policy.delay_s(error, attempt=attempt, waited_s=0, silence_s=9.0, draw=lambda: 1.0)
        for attempt in range(1, 10)
    ]
    assert longest == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0, None]
    assert policy.delay_s(error, attempt=5, waited_s=0, silence_s=9.0, draw=lambda: 0.0) == 0.0


def test_a_failure_among_answers_is_not_waited_for_long() -> None:
    error = failure(ErrorKind.RATE)
    for silence_s, longest in ((0.01, 1.0), (3.0, 3.0), (1e9, 15.0)):
        delay = DEFAULT_POLICY.delay_s(
            error, attempt=9, waited_s=0, silence_s=silence_s, draw=lambda: 1.0
        )
        assert delay == longest


@pytest.mark.parametrize("jitter", [0.0, 0.9])
def test_what_the_provider_asks_for_is_waited_at_least(jitter: float) -> None:
    error = failure(ErrorKind.RATE, retry_after_s=20.0)
    delay = DEFAULT_POLICY.delay_s(error, attempt=1, waited_s=0, silence_s=9.0, draw=lambda: jitter)
    assert delay is not None
    assert delay >= 20.0


def test_a_wait_beyond_the_bound_is_given_up() -> None:
    error = failure(ErrorKind.RATE, retry_after_s=3_600)
    assert (
        DEFAULT_POLICY.delay_s(error, attempt=1, waited_s=0, silence_s=9.0, draw=lambda: 0.0)
        is None
    )


def rounds(
    window: AdaptiveConcurrency,
    number: int,
    *,
    latency_s: float,
    refused: float = 0.0,
    now: float = 0.0,
) -> list[int]:
    """Return the window's limit after each of so many rounds, all places used."""
    limits = []
    for _ in range(number):
        calls = max(20, window.limit)
        now += 1.5
        window.note_full()
        for call in range(calls):
            window.note(now, now + latency_s, refused=call < refused * calls)
        now += latency_s
        limits.append(window.limit)
    return limits


def test_without_a_number_it_doubles_while_latency_holds() -> None:
    assert rounds(AdaptiveConcurrency(), 8, latency_s=0.2) == [
        32,
        64,
        128,
        256,
        512,
        1000,
        1000,
        1000,
    ]


def test_it_stops_rising_when_calls_take_longer() -> None:
    window = AdaptiveConcurrency()
    rounds(window, 3, latency_s=0.2)
    before = window.limit
    assert rounds(window, 2, latency_s=0.5, now=100.0)[0] < before


def test_a_given_number_falls_when_most_calls_are_refused() -> None:
    assert rounds(AdaptiveConcurrency(100), 3, latency_s=0.2, refused=0.8) == [70, 49, 34]


def test_a_provider_that_refuses_now_and_then_does_not_stop_the_run() -> None:
    assert rounds(AdaptiveConcurrency(100), 20, latency_s=0.2, refused=0.3) == [100] * 20


def test_a_low_number_does_not_rise_because_calls_take_longer() -> None:
    window = AdaptiveConcurrency()
    rounds(window, 1, latency_s=0.2)
    low = rounds(window, 6, latency_s=0.2, refused=0.8, now=100.0)[-1]
    assert low < 16
    assert max(rounds(window, 3, latency_s=5.0, now=200.0)) <= low


NO_CONNECTION = ProviderError(ErrorKind.CONNECTION, "no connection")
NONSENSE = ProviderError(ErrorKind.SERVER, "<html>", 200)
REFUSED = ProviderError(ErrorKind.RATE, "later", 429)
BROKEN = ProviderError(ErrorKind.SERVER, "broken", 500)


def provider_gate() -> ProviderGate:
    return ProviderGate(time.monotonic)


def waits(gate: ProviderGate, errors: list[ProviderError]) -> float:
    """Return the seconds that a call waits at most which ends in these errors, again and again."""
    waited_s, attempt = 0.0, 0
    while True:
        error = errors[attempt % len(errors)]
        attempt += 1
        gate.note_failure(error, DEFAULT_POLICY.total_s)
        delay = gate.bounded(DEFAULT_POLICY).delay_s(
            error, attempt=attempt, waited_s=waited_s, silence_s=1e9, draw=lambda: 1.0
        )
        if delay is None:
            return waited_s
        waited_s += delay


@pytest.mark.parametrize("error", [NO_CONNECTION, NONSENSE], ids=["no connection", "nonsense"])
def test_whom_nobody_has_heard_of_is_given_up_after_three_seconds(error: ProviderError) -> None:
    assert 1 <= waits(provider_gate(), [error]) <= 3


@pytest.mark.parametrize(
    "errors",
    [[REFUSED], [BROKEN], [REFUSED, NO_CONNECTION], [BROKEN, NONSENSE]],
    ids=["429", "500", "429 and gone", "500 and nonsense"],
)
def test_who_refuses_is_there_and_worth_waiting_for(errors: list[ProviderError]) -> None:
    assert waits(provider_gate(), errors) > 10


def test_who_has_answered_once_is_worth_waiting_for() -> None:
    gate = provider_gate()
    gate.note_answer()
    assert waits(gate, [NO_CONNECTION]) > 10
