"""What nodes ask for: model calls, and the targets that answer in the place of nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.exchange import Complete, ProviderError, Reply, Request
from evalcore.workflow.usage import ProviderCall


class NodeQuestion(NamedTuple):
    """The input of a node for the target that its type names; JSON values."""

    node: str
    type: str
    input: Any
    config: Mapping[str, Any]


class TargetAnswer(NamedTuple):
    """What a target answered for a node, and the provider calls that it made."""

    evidence: Evidence
    calls: tuple[ProviderCall, ...] = ()


AskTarget = Callable[[NodeQuestion], Awaitable[TargetAnswer | None]]
"""Returns the answer of the target that a type names; None if no target is called so."""


class NodeCalls:
    """Makes a node's provider calls and notes them; `count` says how many were tried."""

    def __init__(self, complete: Complete, node: str, calls: list[ProviderCall]) -> None:
        self._complete, self._node, self._calls = complete, node, calls
        self.count = 0

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; errors as `Complete`."""
        self.count += 1
        call = ProviderCall(request.endpoint.provider, request.model or "", self._node, UNMEASURED)
        call = call._replace(group=len(self._calls))
        try:
            reply = await self._complete(request)
        except ProviderError as error:
            self._calls.append(call._replace(attempts=error.attempts, error=str(error)))
            raise
        answered = call._replace(
            model=reply.model or call.model,
            metrics=reply.metrics,
            attempts=reply.attempts,
            recorded=reply.recorded,
        )
        self._calls.append(answered)
        return reply
