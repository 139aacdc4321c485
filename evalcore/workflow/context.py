"""What a block reads and calls while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from evalcore.errors import EvalError, TargetError
from evalcore.model.assertion import Assertion, AssertionResult
from evalcore.model.evidence import UNMEASURED, Metrics
from evalcore.model.exchange import Complete, ProviderError, Request, SkippedError
from evalcore.trust.imports import ImportPolicy
from evalcore.workflow.definition import Block, Caps, Soul, WorkflowDefinition
from evalcore.workflow.events import BlockError, EventType, NoExecutorError, ProviderCall
from evalcore.workflow.run_store import EventLog, MemoryRunStore, RunStore
from evalcore.workflow.values import (
    WorkflowState,
    fill,
    lookup,
    placeholders,
    sole_placeholder,
    text_of,
)


class SoulAnswer(NamedTuple):
    """What a soul answered, who gave it, and what it took."""

    text: str
    provider: str
    model: str
    metrics: Metrics = UNMEASURED
    attempts: int = 1
    recorded: bool = False


Ask = Callable[[Soul, Sequence[Mapping[str, Any]]], Awaitable[SoulAnswer]]
"""Returns a soul's answer to messages; errors are `EvalError`s."""

Check = Callable[[Sequence[Assertion], str, Metrics], Awaitable[Sequence[AssertionResult]]]
"""Checks a block's own assertions on its output."""


@dataclass(frozen=True, slots=True)
class EngineServices:
    """What an execution uses.

    `complete` makes plain HTTP requests. `workflows` are those that `workflow_ref` may name.
    `steps` takes a record of each run of a block (`workflow.recorded_steps`), if it is a list.
    A workflow `of_service` was registered by a caller without access to this machine: it reaches
    public addresses, reads variables that the settings name and no files, and its code is confined.
    """

    ask: Ask
    complete: Complete
    folder: Path
    imports: ImportPolicy = field(default_factory=ImportPolicy)
    store: RunStore = field(default_factory=MemoryRunStore)
    check: Check | None = None
    workflows: Mapping[str, WorkflowDefinition] = field(default_factory=dict)
    steps: list[dict[str, Any]] | None = None
    of_service: bool = False


@dataclass(slots=True)
class Meter:
    """What was spent under one `limits`: a block's or a workflow's. `warned` names what passed."""

    caps: Caps
    cost_usd: float = 0.0
    tokens: int = 0
    warned: set[str] = field(default_factory=set)

    def add(self, metrics: Metrics) -> None:
        """Count a call."""
        self.cost_usd += metrics.cost_usd or 0.0
        self.tokens += metrics.total_tokens or 0

    def exceeded(self) -> Mapping[str, str]:
        """Return which caps are passed, each with a sentence about it."""
        passed = {}
        caps = self.caps
        cost_usd, tokens = caps.cost_cap_usd, caps.token_cap
        if cost_usd is not None and self.cost_usd > cost_usd:
            passed["cost_cap_usd"] = f"cost {self.cost_usd:g} USD, the limit is {cost_usd:g}"
        if tokens is not None and self.tokens > tokens:
            passed["token_cap"] = f"used {self.tokens} tokens, the limit is {tokens}"
        return passed


@dataclass(frozen=True, slots=True)
class Context:
    """One run of one block.

    `inputs` are those it declares, resolved (None: it declares none). `run_inner` runs another
    block of the same workflow and returns its output; `run_child` runs another workflow as this
    block, at most so many levels deep. `path` is the block's path in events, `fixtures` the outputs
    of blocks that do not run.
    """

    block: Block
    definition: WorkflowDefinition
    inputs: Mapping[str, Any] | None
    fixtures: Mapping[str, str]
    state: WorkflowState
    services: EngineServices
    log: EventLog
    path: str
    calls: list[ProviderCall]
    call_block: str
    meters: tuple[Meter, ...]
    run_inner: Callable[[str], Awaitable[Any]]
    run_child: Callable[
        [WorkflowDefinition, Mapping[str, Any], int], Awaitable[tuple[Any, WorkflowState]]
    ]

    @property
    def data(self) -> dict[str, Any]:
        """Return what the block sees: its declared inputs, or everything if it declares none."""
        return self.state.everything() if self.inputs is None else dict(self.inputs)

    def fill(self, template: str, field: str) -> str:
        """Return a template of the block with its placeholders replaced."""
        return fill(template, self.inputs or {}, self.state, where=field)

    def value(self, template: str, field: str) -> Any:
        """Return what a template stands for; the value itself where it is one placeholder."""
        name = sole_placeholder(template)
        if name is None:
            return self.fill(template, field)
        return lookup(name, self.inputs or {}, self.state, field)

    def message(self, instruction: str, field: str) -> str:
        """Return an instruction; without placeholders, followed by what the block sees as JSON."""
        text = self.fill(instruction, field)
        data = self.data
        return text if placeholders(instruction) or not data else f"{text}\n\n{text_of(data)}"

    async def request(self, request: Request) -> str:
        """Return the body of the answer to a plain HTTP request; errors as `ask`."""
        provider = request.endpoint.provider
        call = self.call(provider, "")._replace(is_model=False)

        async def send() -> SoulAnswer:
            reply = await self.services.complete(request)
            metrics = Metrics(latency_ms=reply.latency_ms, cost_usd=reply.cost_usd)
            return SoulAnswer(reply.text, provider, "", metrics, reply.attempts, reply.recorded)

        return (await self.answered(call, send)).text

    def call(
        self, provider: str, model: str, part: str | None = None, group: int | None = None
    ) -> ProviderCall:
        """Return a call that is about to be made."""
        return ProviderCall(
            provider=provider,
            model=model,
            block=self.call_block,
            metrics=UNMEASURED,
            group=len(self.calls) if group is None else group,
            part=part,
        )

    async def answered(
        self, call: ProviderCall, send: Callable[[], Awaitable[SoulAnswer]]
    ) -> SoulAnswer:
        """Return the answer, recorded as an event; hold the limits to it."""
        try:
            answer = await send()
        except (SkippedError, NoExecutorError):
            raise
        except ProviderError as error:
            await self._note(call._replace(attempts=error.attempts, error=str(error)))
            raise BlockError(error.kind, str(error), retryable=error.retryable) from error
        except TargetError as error:
            await self._note(call._replace(error=str(error)))
            raise BlockError(error.kind, str(error), retryable=True) from error
        except EvalError as error:
            raise BlockError("provider", str(error)) from error
        answered = call._replace(
            provider=answer.provider, model=answer.model, metrics=answer.metrics
        )
        await self._note(answered._replace(attempts=answer.attempts, recorded=answer.recorded))
        await self._hold_limits(answer.metrics)
        return answer

    async def _note(self, call: ProviderCall) -> None:
        self.calls.append(call)
        path = self.path if call.part is None else f"{self.path}.{call.part}"
        await self.log.add_call(call, path)

    async def _hold_limits(self, measured: Metrics) -> None:
        for meter in self.meters:
            meter.add(measured)
            for cap, message in meter.exceeded().items():
                if not meter.caps.warns:
                    raise BlockError("limit", f"{cap}: {message}")
                if cap not in meter.warned:
                    meter.warned.add(cap)
                    await self.log.add(EventType.LIMIT_EXCEEDED, self.path, message=message)
