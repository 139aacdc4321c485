"""The run's budget: what a call may cost is reserved before it and settled after it.

Dollars and tokens alike. What other processes of the run spent counts. Calls belong to one event
loop; the allowance may come from another thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple

from evalcore.model.exchange import (
    ANTHROPIC_TOKENS,
    BOUNDS,
    Cut,
    ErrorKind,
    ProviderError,
    Reply,
    Request,
    SkippedError,
    cut_of,
)
from evalcore.model.scoring import ROUNDING, reaches

# A call without a bound of its own gets this much until answers show what they need.
FIRST_SHARE_TOKENS = 4_096
# Models refuse to be allowed more than they can answer with.
LARGEST_SHARE_TOKENS = 16_384
# An answer may be so many times as long as the longest until now.
_ROOM = 4
_MILLION = 1e6


class Spent(NamedTuple):
    """An amount: US dollars and tokens."""

    cost_usd: float = 0.0
    tokens: int = 0

    def plus(self, other: Spent) -> Spent:
        """Return the sum."""
        return Spent(self.cost_usd + other.cost_usd, self.tokens + other.tokens)

    def minus(self, other: Spent) -> Spent:
        """Return the difference."""
        return Spent(self.cost_usd - other.cost_usd, self.tokens - other.tokens)

    def least(self, other: Spent) -> Spent:
        """Return the smaller of each."""
        return Spent(min(self.cost_usd, other.cost_usd), min(self.tokens, other.tokens))

    def most(self, other: Spent) -> Spent:
        """Return the larger of each."""
        return Spent(max(self.cost_usd, other.cost_usd), max(self.tokens, other.tokens))

    def part(self, factor: float) -> Spent:
        """Return so many times the amount, in whole tokens."""
        return Spent(self.cost_usd * factor, int(self.tokens * factor))


NOTHING_SPENT = Spent()


class Bounds(NamedTuple):
    """The most that a run may spend; None where there is no bound."""

    max_cost_usd: float | None = None
    max_tokens: int | None = None

    @property
    def rounding(self) -> Spent:
        """What is so little that it is a rounding error."""
        return Spent((self.max_cost_usd or 0.0) * ROUNDING)

    def has(self, free: Spent, amount: Spent) -> bool:
        """Whether `amount` fits into what is free, as far as there are bounds."""
        return (
            self.max_cost_usd is None or reaches(free.cost_usd, amount.cost_usd, self.max_cost_usd)
        ) and (self.max_tokens is None or amount.tokens <= free.tokens)

    def where_bound(self, amount: Spent, otherwise: Spent) -> Spent:
        """Return the amount, or the other where there is no bound."""
        return Spent(
            otherwise.cost_usd if self.max_cost_usd is None else amount.cost_usd,
            otherwise.tokens if self.max_tokens is None else amount.tokens,
        )

    def less(self, spent: Spent) -> Spent:
        """Return what is left of the bounds; 0 where there is none."""
        return Spent(
            0.0 if self.max_cost_usd is None else self.max_cost_usd - spent.cost_usd,
            0 if self.max_tokens is None else self.max_tokens - spent.tokens,
        )


class TokenPrice(NamedTuple):
    """What a model costs, in US dollars per million tokens."""

    input: float = 0.0
    output: float = 0.0


class TokenDemand(NamedTuple):
    """What a call may use at most. `output_tokens` is None where it has no bound of its own."""

    input_tokens: int
    output_tokens: int | None
    price: TokenPrice
    choices: int = 1

    def cost(self, output_tokens: int | None) -> Spent:
        """Return what the call uses at most with an answer of so many tokens."""
        output = (output_tokens or 0) * self.choices
        cost_usd = (self.input_tokens * self.price.input + output * self.price.output) / _MILLION
        return Spent(cost_usd, self.input_tokens + output)


class Grant(NamedTuple):
    """What was reserved for a call, and the most tokens that it may answer with.

    `shared` says that this bound is the budget's and not the call's own.
    """

    cost_usd: float
    tokens: int
    output_tokens: int | None
    shared: bool


def demand_of(request: Request, price: TokenPrice) -> TokenDemand:
    """Return the most that a call can use: its input's bytes as tokens, and its `max_tokens`."""
    import orjson

    sent = orjson.dumps(
        [request.messages, request.tools, request.response_schema],
        option=orjson.OPT_NON_STR_KEYS,
        default=str,
    )
    parameters = request.parameters
    bound = next(
        (parameters[name] for name in BOUNDS if isinstance(parameters.get(name), int)), None
    )
    if bound is None and request.endpoint.protocol == "anthropic":
        bound = ANTHROPIC_TOKENS
    choices = parameters.get("n")
    return TokenDemand(len(sent), bound, price, choices if isinstance(choices, int) else 1)


class Position(NamedTuple):
    """What a process has done with its part of a shared budget.

    `settled` is billed, `assumed` is what calls that came to no end may have cost; `committed` is
    both, and what is reserved for calls in flight. `allowance` is what the process may spend (as
    much as it has committed where there is no bound). `need` is what the first waiting call needs.
    """

    settled: Spent
    assumed: Spent
    committed: Spent
    allowance: Spent
    need: Spent | None


class RunBudget:
    """Grants calls as long as what is spent and reserved stays within the bounds.

    Calls are granted in the order in which they came. A budget that is `shared` with other
    processes grants calls out of an allowance (`allow`), which `ask` asks for; see
    execution.shared.
    """

    def __init__(
        self,
        *,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
        spent: Spent = NOTHING_SPENT,
        shared: bool = False,
    ) -> None:
        self.bounds = Bounds(max_cost_usd, max_tokens)
        self.ask: Callable[[], None] = lambda: None
        self._elsewhere = spent
        self._allowance = NOTHING_SPENT if shared else self.bounds.less(spent)
        # Whether nothing that other processes do can add to the allowance.
        self._final = not shared
        self._failed = False
        self._settled = self._assumed = self._reserved = NOTHING_SPENT
        self._running = 0
        # The longest answer to a call of this process, in tokens.
        self._longest = 0
        self._waiting: deque[_WaitingCall] = deque()
        self._lock = threading.Lock()

    @property
    def spent(self) -> Spent:
        """What is settled, here and elsewhere; of calls that came to no end what was reserved."""
        return self._elsewhere.plus(self._settled).plus(self._assumed)

    def try_reserve(self, demand: TokenDemand, concurrency: int) -> Grant | None:
        """Return the grant of a call; None if it has to wait for one (`reserve`).

        `concurrency` is how many calls may run at once. Raises `SkippedError` if nothing that runs
        could free what the call needs.
        """
        with self._lock:
            if self._waiting or self._failed:
                return None
            grant = self._grant(demand, concurrency)
            if grant is None and not self._may_rise():
                raise self._exhausted()
            return grant

    async def reserve(self, demand: TokenDemand, concurrency: int) -> Grant:
        """Return the grant of a call, once running calls have left enough; else `SkippedError`."""
        with self._lock:
            waiting = _WaitingCall(demand, concurrency)
            self._waiting.append(waiting)
            self._serve()
        try:
            grant = await waiting.future
        # However the wait ends (cancelled, or closed with its loop), its grant must not be lost.
        except BaseException:
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                if waiting.grant is not None:
                    self._release(waiting.grant)
                self._serve()
            raise
        if grant is None:
            raise self._exhausted()
        return grant

    def settle(
        self, grant: Grant, used: Spent, output_tokens: int = 0, *, assumed: bool = False
    ) -> None:
        """Replace a reservation by what the call used; `output_tokens` are its answer's.

        `assumed` says that the call came to no end, so that what it used is not certain.
        """
        with self._lock:
            self._release(grant)
            if assumed:
                self._assumed = self._assumed.plus(used)
            else:
                self._settled = self._settled.plus(used)
            self._longest = max(self._longest, output_tokens)
            self._serve()

    def position(self, *, returns: bool = False) -> Position:
        """Return what has become of the allowance; `returns` gives up all that is not committed."""
        with self._lock:
            committed = self._committed
            if returns:
                self._allowance, self._final = committed, False
            need = None
            if self._waiting:
                first = self._waiting[0]
                need = first.demand.cost(self._size(first.demand, first.concurrency)[0])
            allowance = self.bounds.where_bound(self._allowance, committed)
            return Position(self._settled, self._assumed, committed, allowance, need)

    def allow(self, allowance: Spent, elsewhere: Spent, *, final: bool) -> None:
        """Take the allowance that stands in the store.

        `elsewhere` is what other processes spent. `final` says that nothing that other processes do
        can add to the allowance.
        """
        with self._lock:
            self._allowance, self._elsewhere, self._final = allowance, elsewhere, final
            self._serve()

    def fail(self) -> None:
        """Grant nothing any more: the run is about to be stopped."""
        with self._lock:
            self._failed = True

    @property
    def _committed(self) -> Spent:
        return self._settled.plus(self._assumed).plus(self._reserved)

    def _may_rise(self) -> bool:
        """Whether more may become free."""
        return self._running > 0 or not self._final

    def _release(self, grant: Grant) -> None:
        self._running -= 1
        # Without calls nothing is reserved: rounding must not leave a rest.
        usd = self._reserved.cost_usd - grant.cost_usd if self._running else 0.0
        self._reserved = Spent(usd, self._reserved.tokens - grant.tokens)

    def _serve(self) -> None:
        """Give those who wait what there is, in their order."""
        while self._waiting and not self._failed:
            head = self._waiting[0]
            grant = self._grant(head.demand, head.concurrency)
            if grant is None and self._may_rise():
                self.ask()
                return
            self._waiting.popleft()
            if not head.set(grant) and grant is not None:
                self._release(grant)

    def _size(self, demand: TokenDemand, concurrency: int) -> tuple[int | None, bool]:
        """Return the most tokens that a call may answer with, and whether the budget says so.

        A call that cannot have all that it asks for gets so much that a usual
        answer has plenty of room, and as much as a fair share of what is left.
        """
        bound = demand.output_tokens
        spent = self._elsewhere.plus(self._settled).plus(self._assumed)
        left = self._output_within(demand, self.bounds.less(spent))
        if left is None or (bound is not None and left >= bound):
            return bound, False
        most = max(LARGEST_SHARE_TOKENS, self._longest) if bound is None else bound
        usual = _ROOM * self._longest if self._longest else FIRST_SHARE_TOKENS
        return min(max(usual, left // (2 * concurrency)), most), True

    def _grant(self, demand: TokenDemand, concurrency: int) -> Grant | None:
        """Reserve for a call; None if what is free is not enough."""
        output, shared = self._size(demand, concurrency)
        free = self._allowance.minus(self._committed)
        cost = demand.cost(output)
        if not self.bounds.has(free, cost):
            rest = None if self._may_rise() else self._output_within(demand, free)
            # What is left is for the last call, if an answer as long as others were fits into it.
            if not shared or rest is None or rest < max(1, self._longest):
                return None
            output, cost = rest, demand.cost(rest)
        self._running += 1
        self._reserved = self._reserved.plus(cost)
        return Grant(cost.cost_usd, cost.tokens, output, shared)

    def _output_within(self, demand: TokenDemand, free: Spent) -> int | None:
        """Return how many output tokens the call could pay; None if there is no bound.

        Negative if not even its input fits.
        """
        counts: list[int] = []
        if self.bounds.max_tokens is not None:
            counts.append(free.tokens - demand.input_tokens)
        if self.bounds.max_cost_usd is not None:
            rest = free.cost_usd + self.bounds.rounding.cost_usd
            rest -= demand.input_tokens * demand.price.input / _MILLION
            if rest < 0:
                counts.append(-1)
            elif demand.price.output:
                counts.append(int(rest * _MILLION / demand.price.output))
        return min(counts) // demand.choices if counts else None

    def _exhausted(self) -> SkippedError:
        spent = self.spent
        bounds = []
        if self.bounds.max_cost_usd is not None:
            bounds.append(f"{spent.cost_usd:.6g} of {self.bounds.max_cost_usd:g} US dollars")
        if self.bounds.max_tokens is not None:
            bounds.append(f"{spent.tokens} of {self.bounds.max_tokens} tokens")
        return SkippedError("budget", f"the run's budget is used up ({', '.join(bounds)})")


class _WaitingCall:
    """A call that waits in its event loop for a grant, which may come from another thread."""

    def __init__(self, demand: TokenDemand, concurrency: int) -> None:
        import asyncio

        self.demand, self.concurrency = demand, concurrency
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Grant | None] = self._loop.create_future()
        # A cancelled call looks at it: it may have come meanwhile.
        self.grant: Grant | None = None

    def set(self, grant: Grant | None) -> bool:
        """Pass the grant (None: there will be none), once; return False if the loop has ended."""
        self.grant = grant
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve)
            return True
        return False

    def _resolve(self) -> None:
        if not self.future.done():
            self.future.set_result(self.grant)


# A stopped run waits so long (seconds) for answers, which say what its last calls cost.
LAST_ANSWERS_S = 5.0
# More than this is any budget, and sums of it can be written as JSON.
_MOST_TOKENS = 2**50


class Settlement:
    """A grant of the budget, settled at the end of the context by what the call is known to use.

    A call that was not sent, or that was refused, costs nothing. One that came to no end is settled
    with all that was reserved for it.
    """

    def __init__(self, budget: RunBudget, grant: Grant) -> None:
        self._budget = budget
        self._grant = grant
        self._used = NOTHING_SPENT
        self._output_tokens = 0
        self._assumed = False

    def __enter__(self) -> Settlement:
        return self

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        if isinstance(error, ProviderError) and _is_free(error):
            self._used = NOTHING_SPENT
        self._budget.settle(self._grant, self._used, self._output_tokens, assumed=self._assumed)

    def bounded(self, request: Request) -> Request:
        """Return the request with the budget's bound on its answer, if it has to have one."""
        if not self._grant.shared:
            return request
        name = next((name for name in BOUNDS if name in request.parameters), "max_tokens")
        bound = {name: self._grant.output_tokens}
        return replace(request, parameters={**request.parameters, **bound})

    async def answered(
        self,
        call: Coroutine[Any, Any, Reply],
        priced: Callable[[Reply], Reply],
        item_is_timed_out: Callable[[], bool],
    ) -> Reply:
        """Return the reply of a call, priced.

        A call that is cancelled because the run is stopped, and not because its item has
        used up its time, gets a moment for its answer: what it used is known then.
        """
        import asyncio

        self._used, self._assumed = Spent(self._grant.cost_usd, self._grant.tokens), True
        task = asyncio.ensure_future(call)
        try:
            return self._note(priced(await asyncio.shield(task)))
        except asyncio.CancelledError:
            try:
                if not item_is_timed_out():
                    await asyncio.wait([task], timeout=LAST_ANSWERS_S)
            finally:
                if not task.done():
                    task.cancel()
                elif not task.cancelled() and task.exception() is None:
                    self._note(priced(task.result()))
            raise

    def is_cut(self, reply: Reply) -> bool:
        """Whether the budget's bound cut the answer."""
        return self._grant.shared and cut_of(reply.finish_reason) is Cut.LENGTH

    def _note(self, reply: Reply) -> Reply:
        """Note what an answer used; what is not said is what was reserved."""
        tokens = reply.usage.total_tokens
        self._used = Spent(
            self._grant.cost_usd if reply.cost_usd is None else reply.cost_usd,
            self._grant.tokens if tokens is None else min(tokens, _MOST_TOKENS),
        )
        self._output_tokens = min(reply.usage.output_tokens or 0, _MOST_TOKENS)
        self._assumed = tokens is None
        return reply


def _is_free(error: ProviderError) -> bool:
    """Whether a failed attempt cannot have been paid: refused, or never sent."""
    if error.status is not None:
        return error.status >= 300
    return error.kind == ErrorKind.REQUEST or "no connection" in error.message
