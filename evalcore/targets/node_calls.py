"""What nodes ask for: model calls, and the targets that answer in the place of nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from evalcore.model.evidence import UNMEASURED, Evidence
from evalcore.model.exchange import Complete, ProviderError, Reply, Request
from evalcore.workflow.events import EventType, ProviderCall
from evalcore.workflow.run_store import EventLog


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
    """Makes a node's provider calls and notes them; `count` says how many were tried.

    Those made while the flow runs are events of its `log`.
    """

    def __init__(
        self,
        complete: Complete,
        node: str,
        calls: list[ProviderCall],
        log: EventLog | None = None,
    ) -> None:
        self._complete, self._node, self._calls, self._log = complete, node, calls, log
        self.count = 0

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; errors as `Complete`."""
        self.count += 1
        call = ProviderCall(request.endpoint.provider, request.model or "", self._node, UNMEASURED)
        call = call._replace(group=len(self._calls), is_model=bool(request.model))
        try:
            reply = await self._complete(request)
        except ProviderError as error:
            await self._note(call._replace(attempts=error.attempts, error=str(error)))
            raise
        answered = call._replace(
            model=reply.model or call.model,
            metrics=reply.metrics,
            attempts=reply.attempts,
            recorded=reply.recorded,
        )
        await self._note(answered)
        return reply

    async def _note(self, call: ProviderCall) -> None:
        self._calls.append(call)
        if self._log is not None:
            await log_call(self._log, call)


async def log_call(log: EventLog, call: ProviderCall) -> None:
    """Keep a provider call of a node as an event."""
    type_ = EventType.MODEL_CALL if call.is_model else EventType.HTTP_CALL
    data = {key: value for key, value in call.as_json().items() if key != "block"}
    await log.add(type_, call.output_id, **data)
