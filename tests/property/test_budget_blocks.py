"""A shared budget is never exceeded, whichever processes die and however the store fails."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evalcore.errors import StoreError
from evalcore.execution.budget import Grant, Spent, TokenDemand, TokenPrice
from evalcore.model.exchange import SkippedError
from evalcore.storage.runs import StoredRun
from tests.support.examples import examples
from tests.support.limit_processes import KEYS, LimitedProcess, MemoryStore, stored_limits

PRICE = TokenPrice(1.0, 2.0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Fleet:
    """Processes that begin, call, settle, leave and die; `used` is what providers would bill."""

    def __init__(self, random: Random, max_tokens: int, max_cost_usd: float) -> None:
        self.random, self.clock = random, Clock()
        self.faults = False
        self.store = MemoryStore(Path(tempfile.gettempdir()), self.fault)
        self.run = StoredRun(self.store, KEYS)
        self.bounds: dict[str, Any] = {"max_tokens": max_tokens, "max_cost_usd": max_cost_usd}
        self.living: list[tuple[LimitedProcess, list[Grant]]] = []
        self.used = Spent()
        self.dead_calls = Spent()

    def fault(self) -> str:
        return self.random.choice(["", "", "lost", "unanswered"]) if self.faults else ""

    def begin(self) -> None:
        with suppress(StoreError):
            self.living.append((LimitedProcess(self.run, self.clock, **self.bounds), []))

    def call(self) -> None:
        process, grants = self.random.choice(self.living)
        size = TokenDemand(self.random.randrange(1, 60), self.random.randrange(1, 200), PRICE)
        with suppress(SkippedError):
            grant = process.try_reserve(size)
            if grant is not None:
                grants.append(grant)

    def settle(self) -> None:
        process, grants = self.random.choice(self.living)
        if grants:
            grant = grants.pop(self.random.randrange(len(grants)))
            part = self.random.random()
            used = Spent(grant.cost_usd * part, int(grant.tokens * part))
            process.budget.settle(grant, used, used.tokens)
            self.used = self.used.plus(used)

    def step(self) -> None:
        process, _ = self.random.choice(self.living)
        self.clock.now += self.random.choice([0.1, 1.0, 5.0])
        with suppress(StoreError):
            process.step()

    def die(self) -> None:
        _, grants = self.living.pop(self.random.randrange(len(self.living)))
        for grant in grants:
            self.dead_calls = self.dead_calls.plus(Spent(grant.cost_usd, grant.tokens))

    def leave(self) -> None:
        process, grants = self.living.pop(self.random.randrange(len(self.living)))
        for grant in grants:
            used = Spent(grant.cost_usd, grant.tokens)
            process.budget.settle(grant, used, assumed=True)
            self.used = self.used.plus(used)
        process.sync.leave()

    @property
    def at_most(self) -> Spent:
        """What providers may bill at most: calls in flight and of dead processes count whole."""
        grants = itertools.chain.from_iterable(grants for _, grants in self.living)
        total = self.used.plus(self.dead_calls)
        for grant in grants:
            total = total.plus(Spent(grant.cost_usd, grant.tokens))
        return total


@examples(30)
@given(st.integers(0, 2**32), st.integers(100, 5_000), st.booleans())
def test_no_death_and_no_fault_makes_processes_exceed_the_budget(
    seed: int, max_tokens: int, faults: bool
) -> None:
    random = Random(seed)
    fleet = Fleet(random, max_tokens, max_tokens * random.choice([0.5, 1.5, 3.0]) / 1e6)
    fleet.begin()
    fleet.faults = faults
    steps = [fleet.call] * 6 + [fleet.settle] * 3 + [fleet.step] * 4 + [fleet.die, fleet.leave]
    for _ in range(120):
        if not fleet.living or (len(fleet.living) < 5 and random.random() < 0.1):
            fleet.begin()
        if fleet.living:
            random.choice(steps)()
        spent = fleet.at_most
        assert spent.tokens <= max_tokens
        assert spent.cost_usd <= fleet.bounds["max_cost_usd"] * (1 + 1e-9)
        state = stored_limits(fleet.run)
        confirmed, unsettled = state.confirmed, state.unsettled
        stands = confirmed.plus(unsettled)
        # What may be billed stands in the object before it is spent.
        assert spent.tokens <= stands.tokens <= max_tokens
        assert spent.cost_usd <= stands.cost_usd * (1 + 1e-9) + 1e-12
        assert stands.cost_usd <= fleet.bounds["max_cost_usd"] * (1 + 1e-9)


@examples(30)
@given(st.integers(0, 2**32))
def test_without_deaths_the_object_says_exactly_what_was_spent(seed: int) -> None:
    random = Random(seed)
    fleet = Fleet(random, 5_000, 1.0)
    for _ in range(3):
        fleet.begin()
    for _ in range(100):
        random.choice([fleet.call, fleet.call, fleet.settle, fleet.step])()
    while fleet.living:
        while fleet.living[0][1]:
            fleet.settle()
        fleet.living[0][0].sync.leave()
        del fleet.living[0]
    state = stored_limits(fleet.run)
    confirmed, unsettled = state.confirmed, state.unsettled
    assert confirmed.tokens == fleet.used.tokens
    assert abs(confirmed.cost_usd - fleet.used.cost_usd) < 1e-9
    assert unsettled == Spent()
