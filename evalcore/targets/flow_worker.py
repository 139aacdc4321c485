"""A flow in a worker process: its functions run there, what it asks of the engine stays here.

Model calls, and targets that a flow is or returns, are the engine's business: its limits, budget,
recordings and keys are in its process. The worker knows no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import TargetError
from evalcore.isolation.worker_pool import Job, WorkerPool
from evalcore.model.evidence import Evidence
from evalcore.model.exchange import Endpoint, Reply, Request
from evalcore.model.suite import Case
from evalcore.model.target import Target, Variant
from evalcore.planning.codec import decode_evidence, encode_evidence
from evalcore.providers.chat import ChatModel
from evalcore.targets.build_context import BuildContext
from evalcore.targets.case_messages import Message
from evalcore.targets.flow import FlowOptions, FlowTarget
from evalcore.targets.node_calls import NodeQuestion, TargetAnswer
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
_EVENTS: Final = "events"


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
    )

    async def answer(question: str, value: Any) -> Any:
        if question == _COMPLETE:
            return await work.complete(_request(flow, value))
        if question == _ANSWER:
            target = Target(str(value["name"]), str(value["kind"]), dict(value["options"]))
            return await flow.answered(target, work)
        if question == _NODE:
            return await flow.answered_node(NodeQuestion(*value), work)
        if question == _EVENTS:
            return await _keep_events(work, value)
        raise TargetError("process", f"the engine has no answer to '{question}'")

    raw = await workers.call(Job(_ENTRY, call, answer), work.standing_still)
    return decode_evidence(raw)


async def _keep_events(work: Work, raw: Mapping[str, Any]) -> None:
    """Keep the events of nodes, and the snapshot after them."""
    if work.run_store is None:
        return
    for event in raw["events"]:
        await work.run_store.append_event(Event(*event))
    await work.run_store.save_snapshot(Snapshot(*raw["snapshot"]))


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
            run_store=_EngineRunStore(engine),
        )

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

    async def answered_node(
        self,
        question: NodeQuestion,
        work: Work,  # noqa: ARG002 - as its base
    ) -> TargetAnswer | None:
        """Return the answer of the engine's target."""
        answer: TargetAnswer | None = await self._engine.ask(_NODE, list(question))
        return answer

    async def _complete(self, request: Request) -> Reply:
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


class _EngineRunStore(MemoryRunStore):
    """Hands the events of nodes to the engine, together with each snapshot."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._sent = 0

    async def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and every event before it, in the engine's store."""
        await super().save_snapshot(snapshot)
        events = await self.load_events(self._sent)
        self._sent = snapshot.sequence
        raw = {"events": [list(event) for event in events], "snapshot": list(snapshot)}
        await self._engine.ask(_EVENTS, raw)
