"""A flow in a worker process: its functions run there, what it asks of the engine stays here.

Model calls, and targets that a flow is or returns, are the engine's business: its limits, budget,
recordings and keys are in its process. The worker knows no key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evalcore.errors import TargetError
from evalcore.isolation.worker_pool import Job, WorkerPool
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Complete, Endpoint, ProviderError, Reply, Request
from evalcore.model.suite import Case
from evalcore.model.target import Target, Variant
from evalcore.planning.codec import decode_evidence, encode_evidence
from evalcore.providers.chat import ChatModel
from evalcore.targets.context import BuildContext
from evalcore.targets.flow import FlowOptions, FlowTarget, NodeQuestion
from evalcore.targets.messages import Message
from evalcore.targets.work import Work
from evalcore.trust.imports import ImportPolicy
from evalcore.workflow.events import Event, Snapshot
from evalcore.workflow.run_store import MemoryRunStore

if TYPE_CHECKING:
    from evalcore.isolation.worker_program import Engine

_ENTRY: Final = "evalcore.targets.flow_worker:flow_in_worker"
# The protocol of a request whose endpoint only the engine knows.
_ENGINE: Final = "engine"
_COMPLETE: Final = "complete"
_ANSWER: Final = "answer"
_NODE: Final = "node"
_EVENT: Final = "event"
_SNAPSHOT: Final = "snapshot"


@dataclass(frozen=True, slots=True)
class FlowCall:
    """One work item of a flow, as a worker process gets it."""

    options: dict[str, Any]
    name: str
    case: Case
    variant: Variant
    iteration: int
    item: int
    prompt: str
    messages: tuple[Message, ...]
    folder: Path
    imports: ImportPolicy
    mode: str
    keeps_events: bool


async def answer_in_worker(
    flow: FlowTarget, options: FlowOptions, name: str, work: Work, workers: WorkerPool
) -> Evidence:
    """Return the answer of a flow whose functions run in a worker process; raise `TargetError`."""
    kept = options.model_dump(exclude={"providers"})
    call = FlowCall(
        options=kept,
        name=name,
        case=work.case,
        variant=work.variant,
        iteration=work.iteration,
        item=work.item,
        prompt=work.prompt,
        messages=work.messages,
        folder=work.folder,
        imports=work.imports,
        mode=work.mode,
        keeps_events=work.run_store is not None,
    )

    async def answer(question: str, value: Any) -> Any:
        if question == _COMPLETE:
            return await work.complete(_request(flow, value))
        if question == _ANSWER:
            target = Target(str(value["name"]), str(value["kind"]), dict(value["options"]))
            return await flow.answered(target, work)
        if question == _NODE:
            exchanges = _Exchanges(work)
            asked = NodeQuestion(value["target"], value["value"], value["config"])
            return await exchanges.during(flow.asked_node(asked, exchanges, work))
        if question == _EVENT and work.run_store is not None:
            return await work.run_store.append_event(Event(**value))
        if question == _SNAPSHOT and work.run_store is not None:
            return await work.run_store.save_snapshot(Snapshot(**value))
        raise TargetError("process", f"the engine has no answer to '{question}'")

    raw = await workers.call(Job(_ENTRY, call, answer), work.standing_still)
    return decode_evidence(raw)


class _NodeAnswer(NamedTuple):
    """What a target answered to a node, and the calls that it made, for the worker to note."""

    evidence: Evidence | None
    error: TargetError | None
    exchanges: list[tuple[Request, Reply | ProviderError]]


class _Exchanges:
    """Makes calls and keeps them, without what is secret in them."""

    def __init__(self, work: Work) -> None:
        self._complete = work.complete
        self._made: list[tuple[Request, Reply | ProviderError]] = []

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; errors as `Complete`."""
        endpoint = Endpoint(request.endpoint.protocol, request.endpoint.provider, "")
        shown = Request(endpoint, request.model)
        try:
            reply = await self._complete(request)
        except ProviderError as error:
            self._made.append((shown, error))
            raise
        self._made.append((shown, reply))
        return reply

    async def during(self, answer: Awaitable[Evidence | None]) -> _NodeAnswer:
        """Return the answer with the calls that were made for it."""
        try:
            return _NodeAnswer(await answer, None, self._made)
        except TargetError as error:
            return _NodeAnswer(None, error, self._made)


def _request(flow: FlowTarget, raw: Mapping[str, Any]) -> Request:
    """Return the request that a worker asks for, with what only the engine knows of it."""
    endpoint = raw["endpoint"]
    if endpoint["protocol"] != _ENGINE:
        parts = {name: tuple(raw[name]) for name in ("messages", "tools")}
        return Request(**{**raw, **parts, "endpoint": Endpoint(**endpoint)})
    chat = flow.chat(endpoint["provider"], raw["model"] or None)
    request = chat.request(
        raw["messages"], parameters=raw["parameters"], response_schema=raw["response_schema"]
    )
    return replace(request, tools=tuple(raw["tools"])) if raw["tools"] else request


async def flow_in_worker(call: FlowCall, engine: Engine) -> dict[str, Any]:
    """Return the evidence of a flow as JSON values: what a worker process runs."""
    flow = _FlowInWorker(call, engine)
    return encode_evidence(await flow.answer(flow.work))


class _EventsToEngine(MemoryRunStore):
    """Keeps the events of a flow, and hands each to the engine's store."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    async def append_event(self, event: Event) -> None:
        """Keep an event."""
        await super().append_event(event)
        await self._engine.ask(_EVENT, event._asdict())

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot."""
        await super().save_snapshot(snapshot)
        await self._engine.ask(_SNAPSHOT, snapshot._asdict())


class _FlowInWorker(FlowTarget):
    """A flow whose model calls and targets are asked of the engine."""

    def __init__(self, call: FlowCall, engine: Engine) -> None:
        super().__init__(FlowOptions(**call.options), BuildContext(call.name, call.folder, {}))
        self._engine = engine
        self.work = Work(
            case=call.case,
            variant=call.variant,
            iteration=call.iteration,
            item=call.item,
            prompt=call.prompt,
            messages=call.messages,
            folder=call.folder,
            imports=call.imports,
            mode=call.mode,
            complete=self._complete,
            run_store=_EventsToEngine(engine) if call.keeps_events else None,
        )
        self._noted: dict[int, Reply | ProviderError] = {}

    def _function(self, work: Work) -> Any:
        function = super()._function(work)
        self._engine.loaded()
        return function

    def chat(self, provider: str | None, model: str | None) -> ChatModel:
        """Return what stands for the model until the engine is asked."""
        named = provider or ("anthropic" if (model or "").startswith("claude") else "openai")
        return ChatModel(Endpoint(_ENGINE, named, ""), model or "")

    async def answered(self, target: Target, work: Work) -> Evidence:  # noqa: ARG002 - as its base
        """Return the answer of the engine's target."""
        asked = {"name": target.name, "kind": target.kind, "options": dict(target.options)}
        evidence: Evidence = await self._engine.ask(_ANSWER, asked)
        return evidence

    async def asked_node(
        self,
        question: NodeQuestion,
        complete: Complete,
        work: Work,  # noqa: ARG002 - as its base
    ) -> Evidence | None:
        """Return the answer of the engine's target; its calls are noted here as the node's."""
        asked: _NodeAnswer = await self._engine.ask(_NODE, question._asdict())
        for request, outcome in asked.exchanges:
            self._noted[id(request)] = outcome
            with suppress(ProviderError):
                await complete(request)
        if asked.error is not None:
            raise asked.error
        return asked.evidence

    async def _complete(self, request: Request) -> Reply:
        noted = self._noted.pop(id(request), None)
        if isinstance(noted, ProviderError):
            raise noted
        if noted is not None:
            return noted
        endpoint = request.endpoint
        raw = {
            "endpoint": {
                "protocol": endpoint.protocol,
                "provider": endpoint.provider,
                "base_url": endpoint.base_url,
                "api_key": endpoint.api_key,
                "headers": dict(endpoint.headers),
                "values": dict(endpoint.values),
            },
            "model": request.model,
            "messages": [dict(message) for message in request.messages],
            "parameters": dict(request.parameters),
            "tools": [dict(tool) for tool in request.tools],
            "response_schema": request.response_schema,
            "stream": request.stream,
            "timeout_s": request.timeout_s,
        }
        reply: Reply = await self._engine.ask(_COMPLETE, raw)
        return reply
