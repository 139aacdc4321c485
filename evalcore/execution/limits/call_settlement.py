"""What one call within a budget is settled with, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any

from evalcore.execution.limits.budget import NOTHING_SPENT, Grant, RunBudget, Spent
from evalcore.model.exchange import (
    BOUNDS,
    Cut,
    ErrorKind,
    ProviderError,
    Reply,
    Request,
    cut_of,
)

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
