"""The run's budget: what a call may cost is reserved before it and settled after it.

Dollars and tokens alike. What earlier processes of the run spent counts. Safe in several threads,
each with an event loop of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from evalcore.execution.handover import Waiter
from evalcore.model.exchange import Request, SkippedError

# A call without a bound of its own gets this much until answers show what they need.
FIRST_SHARE_TOKENS = 4_096
# Models refuse to be allowed more than they can answer with.
LARGEST_SHARE_TOKENS = 16_384
# An answer may be so many times as long as the longest until now.
_ROOM = 4
_MILLION = 1e6
_ROUNDING = 1e-12


class Spent(NamedTuple):
    """An amount: US dollars and tokens."""

    cost_usd: float = 0.0
    tokens: int = 0


class TokenPrice(NamedTuple):
    """What a model costs, in US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0


class Demand(NamedTuple):
    """What a call may use at most. `output_tokens` is None where it has no bound of its own."""

    input_tokens: int
    output_tokens: int | None
    price: TokenPrice
    choices: int = 1


class Grant(NamedTuple):
    """What was reserved for a call, and the most tokens that it may answer with.

    `shared` says that this bound is the budget's and not the call's own.
    """

    cost_usd: float
    tokens: int
    output_tokens: int | None
    shared: bool


def demand_of(request: Request, price: TokenPrice) -> Demand:
    """Return the most that a call can use: its input's bytes as tokens, and its `max_tokens`."""
    import orjson

    sent = orjson.dumps(
        [request.messages, request.tools, request.response_schema],
        option=orjson.OPT_NON_STR_KEYS,
        default=str,
    )
    given = request.parameters
    bound = next((given[name] for name in _BOUNDS if isinstance(given.get(name), int)), None)
    if bound is None and request.endpoint.protocol == "anthropic":
        bound = _ANTHROPIC_TOKENS
    choices = given.get("n")
    return Demand(len(sent), bound, price, choices if isinstance(choices, int) else 1)


# What providers.anthropic sends where a request says nothing: that API wants a bound.
_ANTHROPIC_TOKENS = 4_096
_BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class Refill(NamedTuple):
    """Where a budget gets more from that is shared with other processes (execution.pot).

    `take` returns what the bounds rise by, None if there is no more; it may block. It is called
    when less than `low` is left.
    """

    take: Callable[[], Spent | None]
    low: Spent


class Budget:
    """Grants calls as long as what is spent and reserved stays within the bounds.

    Nobody is granted anything before those who wait already.
    """

    def __init__(
        self,
        *,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
        spent: Spent = Spent(),  # noqa: B008  (immutable)
        refill: Refill | None = None,
    ) -> None:
        self._bounds = (max_cost_usd, max_tokens)
        self._refill = refill
        self.refused = False
        self._spent_usd, self._spent_tokens = spent
        self._reserved_usd, self._reserved_tokens = 0.0, 0
        self._running = 0
        self._longest = 0
        self._waiting: deque[_Waiting] = deque()
        self._lock = threading.Lock()

    @property
    def spent(self) -> Spent:
        """What is settled."""
        return Spent(self._spent_usd, self._spent_tokens)

    def reserve_now(self, demand: Demand, places: int) -> Grant | None:
        """Return the grant of a call; None if it has to wait for one (`reserve`).

        `places` is how many calls may run at once. Raises `SkippedError` if nothing that runs could
        free what the call needs.
        """
        with self._lock:
            if self._waiting:
                return None
            grant = self._grant(demand, places)
            if grant is None and not self._running:
                raise self._exhausted()
            return grant

    async def reserve(self, demand: Demand, places: int) -> Grant:
        """Return the grant of a call, once running calls have left enough; else `SkippedError`."""
        with self._lock:
            waiting = _Waiting(demand, places, Waiter())
            self._waiting.append(waiting)
            self._serve()
        try:
            grant = await waiting.waiter.wait()
        # However the wait ends (cancelled, or closed with its loop), its grant must not be lost.
        except BaseException:
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                given = waiting.waiter.handed
                if given is not None and given is not _NOTHING:
                    self._release(given)
                self._serve()
            raise
        if grant is _NOTHING:
            raise self._exhausted()
        return grant

    def settle(self, grant: Grant, used: Spent, output_tokens: int = 0) -> None:
        """Replace a reservation by what the call used; `output_tokens` are its answer's."""
        with self._lock:
            self._release(grant)
            self._spent_usd += used.cost_usd
            self._spent_tokens += used.tokens
            self._longest = max(self._longest, output_tokens)
            self._serve()

    def _release(self, grant: Grant) -> None:
        self._running -= 1
        # Rounding must not make a rest of what nobody holds.
        self._reserved_usd = self._reserved_usd - grant.cost_usd if self._running else 0.0
        self._reserved_tokens -= grant.tokens

    def _serve(self) -> None:
        """Give those who wait what there is, in their order."""
        while self._waiting:
            head = self._waiting[0]
            grant = self._grant(head.demand, head.places)
            if grant is None and self._running:
                return
            self._waiting.popleft()
            if not head.waiter.hand(_NOTHING if grant is None else grant) and grant is not None:
                self._release(grant)

    def rise(self) -> None:
        """Take more from the `refill` if little is left."""
        with self._lock:
            self._rise()

    def _rise(self) -> None:
        while self._refill is not None and self._is_low(self._refill.low):
            # A few times in a run, so that the calls may wait for it.
            more = self._refill.take()
            if more is None:
                return
            cost_usd, tokens = self._bounds
            self._bounds = (
                None if cost_usd is None else cost_usd + more.cost_usd,
                None if tokens is None else tokens + more.tokens,
            )
            self.refused = False

    def _is_low(self, low: Spent) -> bool:
        cost_usd, tokens = self._bounds
        used_usd = self._spent_usd + self._reserved_usd
        used_tokens = self._spent_tokens + self._reserved_tokens
        return (cost_usd is not None and cost_usd - used_usd < low.cost_usd) or (
            tokens is not None and tokens - used_tokens < low.tokens
        )

    def _grant(self, demand: Demand, places: int) -> Grant | None:
        """Reserve for a call; None if what is free is not enough."""
        self._rise()
        bound = demand.output_tokens
        left = self._output_within(demand, 0.0, 0)
        free = self._output_within(demand, self._reserved_usd, self._reserved_tokens)
        if left is None or free is None:  # neither tokens nor dollars bound the answer
            return self._reserve(demand, bound, shared=False)
        if bound is not None and left >= bound:
            return self._reserve(demand, bound, shared=False) if free >= bound else None
        # The call cannot have all that it asks for, whatever comes back. It gets so much that a
        # usual answer has plenty of room, and as much as a fair share of what is left.
        most = max(LARGEST_SHARE_TOKENS, self._longest) if bound is None else bound
        usual = _ROOM * self._longest if self._longest else FIRST_SHARE_TOKENS
        wanted = min(max(usual, left // (2 * places)), most)
        if free < wanted and not self._running:
            # What is left is for the last one, if an answer as long as others were fits into it.
            wanted = free if free >= max(1, self._longest) else wanted
        return self._reserve(demand, wanted, shared=True) if free >= wanted else None

    def _output_within(
        self, demand: Demand, reserved_usd: float, reserved_tokens: int
    ) -> int | None:
        """Return how many output tokens the call could pay; None if there is no bound.

        Negative if not even its input fits.
        """
        max_cost_usd, max_tokens = self._bounds
        found: list[int] = []
        if max_tokens is not None:
            found.append(max_tokens - self._spent_tokens - reserved_tokens - demand.input_tokens)
        if max_cost_usd is not None:
            rest = max_cost_usd * (1 + _ROUNDING) - self._spent_usd - reserved_usd
            rest -= demand.input_tokens * demand.price.input / _MILLION
            if rest < 0:
                found.append(-1)
            elif demand.price.output:
                found.append(int(rest * _MILLION / demand.price.output))
        return min(found) // demand.choices if found else None

    def _reserve(self, demand: Demand, output_tokens: int | None, *, shared: bool) -> Grant:
        output = (output_tokens or 0) * demand.choices
        price = demand.price
        cost_usd = (demand.input_tokens * price.input + output * price.output) / _MILLION
        tokens = demand.input_tokens + output
        self._running += 1
        self._reserved_usd += cost_usd
        self._reserved_tokens += tokens
        return Grant(cost_usd, tokens, output_tokens, shared)

    def _exhausted(self) -> SkippedError:
        self.refused = True
        max_cost_usd, max_tokens = self._bounds
        bounds = []
        if max_cost_usd is not None:
            bounds.append(f"{self._spent_usd:.6g} of {max_cost_usd:g} US dollars")
        if max_tokens is not None:
            bounds.append(f"{self._spent_tokens} of {max_tokens} tokens")
        return SkippedError("budget", f"the run's budget is used up ({', '.join(bounds)})")


class _Waiting(NamedTuple):
    demand: Demand
    places: int
    waiter: Waiter[Grant]


_NOTHING = Grant(0.0, 0, None, shared=False)
