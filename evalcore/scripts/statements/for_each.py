"""`for_each`: a body for every element of a value."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from evalcore.expressions.budget import Budget, LimitError
from evalcore.expressions.values import SCALARS, in_order, walk
from evalcore.scripts.failure import ToolError
from evalcore.scripts.statements.statement import (
    RESULT,
    RequiredBody,
    Statement,
    Template,
    any_waits,
    run_body,
)

if TYPE_CHECKING:
    from evalcore.scripts.iteration import Iteration, Scope

_KEY: Final = "key"
_MOST_ROUNDS: Final = 100_000
# Together, as a loop can gather what no single expression may make.
_MOST_BYTES: Final = 100_000_000
_WALKED: Final = 100_000_000


class ForEach(Statement):
    """Runs its body for every element, `parallelism` of them at the same time."""

    elements: Template = Field(alias="for_each")
    body: RequiredBody = Field(alias="do")
    parallelism: Annotated[int, Field(ge=0)] = 0

    def waits(self, asked_tools: set[int]) -> bool:
        """Whether the body waits."""
        return any_waits((self.body,), asked_tools)

    async def run(self, scope: Scope, run: Iteration) -> Any:
        """Return the results in the order of the elements; of a mapping one of the same keys."""
        elements = self.elements.render(scope)
        if isinstance(elements, Mapping):
            rounds = [{**scope, RESULT: value, _KEY: key} for key, value in elements.items()]
            return dict(zip(elements, await self._rounds(rounds, run), strict=True))
        if isinstance(elements, set | frozenset):
            elements = in_order(elements)
        if isinstance(elements, list | tuple | range):
            if len(elements) > _MOST_ROUNDS:
                message = f"for_each over {len(elements)} elements; at most {_MOST_ROUNDS}"
                raise ToolError("LimitError", message)
            return await self._rounds([{**scope, RESULT: element} for element in elements], run)
        return await run_body(self.body, {**scope, RESULT: elements}, run)

    async def _rounds(self, scopes: list[Scope], run: Iteration) -> list[Any]:
        """Return the results of the rounds in their order, each with a scope of its own."""
        room = Budget(steps=_WALKED, bytes=_MOST_BYTES, seconds=math.inf)
        room.start()
        left = _MOST_BYTES

        async def round_in(scope: Scope) -> Any:
            nonlocal left
            result = await run_body(self.body, scope, run)
            left -= _size(result, room)
            if left < 0:
                message = f"the results of a for_each are larger than {_MOST_BYTES:,} bytes"
                raise ToolError("LimitError", message)
            return result

        if self.parallelism <= 1 or len(scopes) <= 1 or not any_waits((self.body,)):
            return [await round_in(scope) for scope in scopes]
        slots = asyncio.Semaphore(self.parallelism)

        async def round_in_slot(scope: Scope) -> Any:
            async with slots:
                return await round_in(scope)

        tasks = [asyncio.ensure_future(round_in_slot(scope)) for scope in scopes]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        _raise_first([error for error in results if isinstance(error, BaseException)])
        return list(results)


def _raise_first(failures: list[BaseException]) -> None:
    """Raise the first failure in order, not in time, so that every run gives the same message."""
    for error in failures:
        if not isinstance(error, asyncio.CancelledError):
            raise error
    for error in failures:
        raise error


def _size(value: Any, room: Budget) -> int:
    """Return the bytes of a result; more than are allowed for what is too large to be walked."""
    if type(value) in SCALARS:
        return len(value) if isinstance(value, str) else 8
    try:
        return walk(value, room)[1] + 8
    except LimitError:
        return _MOST_BYTES + 1
