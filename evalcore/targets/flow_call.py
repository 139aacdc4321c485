"""A flow's call to a worker process, and the answers that the engine gives it meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from evalcore.errors import TargetError
from evalcore.isolation.pool import Job, WorkerPool
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.model.target import Target, Variant
from evalcore.planning.codec import decode_evidence
from evalcore.providers.chat import ChatModel
from evalcore.targets.case_messages import Message
from evalcore.targets.engine_calls import COMPLETE, complete_in_engine
from evalcore.targets.node_calls import NodeQuestion, TargetAnswer
from evalcore.targets.work import Work
from evalcore.trust.imports import ImportPolicy
from evalcore.workflow.events import Event, Snapshot

_ENTRY: Final = "evalcore.targets.flow_worker:flow_in_worker"
ANSWER: Final = "answer"
NODE: Final = "node"
EVENTS: Final = "events"


class FlowInEngine(Protocol):
    """What the engine answers a worker for a flow."""

    def chat(self, provider: str | None, model: str | None) -> ChatModel:
        """Return the model."""

    async def answered(self, target: Target, work: Work) -> Evidence:
        """Return the answer of a target."""

    async def answered_node(self, question: NodeQuestion, work: Work) -> TargetAnswer | None:
        """Return the answer to a node."""


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
    workspace: Path | None


async def answer_in_worker(
    flow: FlowInEngine, options: Mapping[str, Any], name: str, work: Work, workers: WorkerPool
) -> Evidence:
    """Return the answer of a flow whose functions run in a worker process; raise `TargetError`."""
    call = FlowCall(
        options=dict(options),
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
        workspace=work.workspace,
    )

    async def answer(question: str, value: Any) -> Any:
        if question == COMPLETE:
            return await complete_in_engine(value, flow.chat, work.complete)
        if question == ANSWER:
            target = Target(str(value["name"]), str(value["kind"]), dict(value["options"]))
            return await flow.answered(target, work)
        if question == NODE:
            return await flow.answered_node(NodeQuestion(*value), work)
        if question == EVENTS:
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
