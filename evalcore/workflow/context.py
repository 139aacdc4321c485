"""What a block reads and calls while it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalcore.errors import EvalError, TargetError
from evalcore.model.evidence import UNMEASURED, Metrics
from evalcore.model.exchange import ProviderError, Request, SkippedError
from evalcore.workflow.definition import Block, WorkflowDefinition
from evalcore.workflow.events import EventType
from evalcore.workflow.failure import BlockError, NoExecutorError
from evalcore.workflow.log import EventLog
from evalcore.workflow.services import NO_OFFER, EngineServices, Offer, SoulAnswer
from evalcore.workflow.souls import Soul
from evalcore.workflow.usage import Meter, ProviderCall
from evalcore.workflow.values import (
    WorkflowState,
    fill,
    has_placeholder,
    lookup,
    sole_placeholder,
    text_of,
)
from evalcore.workflow.variant import DEFAULT_SOUL


@dataclass(frozen=True, slots=True)
class Context:
    """One run of one block.

    `inputs` are those it declares, resolved (None: it declares none). `run_inner` runs another
    block of the same workflow and returns its output and exit handle; `run_child` runs another
    workflow as this block, at most so many levels deep. `path` is the block's path in events,
    `fixtures` the outputs of blocks that do not run, `files` those that tools wrote.
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
    run_inner: Callable[[str], Awaitable[tuple[Any, str | None]]]
    run_child: Callable[
        [WorkflowDefinition, Mapping[str, Any], int], Awaitable[tuple[Any, WorkflowState]]
    ]
    files: dict[str, str]

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
        return text if has_placeholder(instruction) or not data else f"{text}\n\n{text_of(data)}"

    async def ask(
        self, soul_ref: str | None, text: str, *, part: str | None = None, group: int | None = None
    ) -> str:
        """Return the soul's answer to a user message.

        `part` is the exit that it is for; calls of one `group` run at the same time. Raise
        `BlockError` if the provider fails or a limit is passed; `SkippedError` as it is.
        """
        name = DEFAULT_SOUL if soul_ref is None else soul_ref
        undefined = Soul(id=name, model_name=self.definition.default_model)
        soul = self.definition.souls.get(name, undefined)
        question: Mapping[str, Any] = {"role": "user", "content": text}
        history: list[Mapping[str, Any]] = []
        if self.block.stateful:
            key = f"{self.block.id}:{name}:{part or ''}"
            history = self.state.conversations.setdefault(key, [])
        system = [{"role": "system", "content": soul.system_prompt}] if soul.system_prompt else []

        async def ask(messages: Sequence[Mapping[str, Any]], offer: Offer) -> SoulAnswer:
            call = self._call(soul.provider or "", soul.model_name or "", part, group)
            conversation = tuple(messages)
            return await self._answered(call, lambda: self.services.ask(soul, conversation, offer))

        messages = [*system, *history, question]
        tools = self.definition.tools_of(soul)
        if tools:
            from evalcore.workflow.tool_turns import answer_in_turns

            answer = await answer_in_turns(soul, tools, messages, ask, self)
        else:
            answer = await ask(messages, NO_OFFER)
        history += [question, {"role": "assistant", "content": answer.text}]
        return answer.text

    async def request(self, request: Request) -> str:
        """Return the body of the answer to a plain HTTP request; errors as `ask`."""
        provider = request.endpoint.provider
        call = self._call(provider, "", None, None)._replace(is_model=False)

        async def send() -> SoulAnswer:
            reply = await self.services.complete(request)
            metrics = Metrics(latency_ms=reply.latency_ms, cost_usd=reply.cost_usd)
            return SoulAnswer(reply.text, provider, "", metrics, reply.attempts, reply.recorded)

        return (await self._answered(call, send)).text

    def _call(self, provider: str, model: str, part: str | None, group: int | None) -> ProviderCall:
        return ProviderCall(
            provider=provider,
            model=model,
            block=self.call_block,
            metrics=UNMEASURED,
            group=len(self.calls) if group is None else group,
            part=part,
        )

    async def _answered(
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
        type_ = EventType.MODEL_CALL if call.is_model else EventType.HTTP_CALL
        data = {key: value for key, value in call.as_json().items() if key != "block"}
        path = self.path if call.part is None else f"{self.path}.{call.part}"
        await self.log.add(type_, path, **data)

    async def _hold_limits(self, measured: Metrics) -> None:
        for meter in self.meters:
            meter.add(measured)
            for cap, message in meter.exceeded().items():
                if not meter.caps.warns:
                    raise BlockError("limit", f"{cap}: {message}")
                if cap not in meter.warned:
                    meter.warned.add(cap)
                    await self.log.add(EventType.LIMIT_EXCEEDED, self.path, message=message)
