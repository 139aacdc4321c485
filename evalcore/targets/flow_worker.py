"""A flow in a worker process: its functions run there, what it asks of the engine stays here.

Model calls, and targets that a flow is or returns, are the engine's business: its limits, budget,
recordings and keys are in its process. The worker knows no key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evalcore.model.evidence import Evidence
from evalcore.model.target import Target
from evalcore.planning.codec import encode_evidence
from evalcore.providers.chat import ChatModel
from evalcore.targets.build_context import BuildContext
from evalcore.targets.engine_calls import complete_in_worker, model_in_worker
from evalcore.targets.flow import FlowOptions, FlowTarget
from evalcore.targets.flow_call import ANSWER, EVENTS, NODE, FlowCall
from evalcore.targets.node_calls import NodeQuestion, TargetAnswer
from evalcore.targets.work import Work
from evalcore.workflow.events import Snapshot
from evalcore.workflow.run_store import MemoryRunStore

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine


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
            workspace=call.workspace,
            complete=complete_in_worker(engine),
            run_store=_EngineRunStore(engine),
        )

    def _function(self, work: Work) -> Any:
        function = super()._function(work)
        self._engine.loaded()
        return function

    def chat(self, provider: str | None, model: str | None) -> ChatModel:
        """Return what stands for the model until the engine is asked."""
        return model_in_worker(provider, model)

    async def answered(self, target: Target, work: Work) -> Evidence:  # noqa: ARG002 - as its base
        """Return the answer of the engine's target."""
        stored = {"name": target.name, "kind": target.kind, "options": dict(target.options)}
        evidence: Evidence = await self._engine.ask(ANSWER, stored)
        return evidence

    async def answered_node(
        self,
        question: NodeQuestion,
        work: Work,  # noqa: ARG002 - as its base
    ) -> TargetAnswer | None:
        """Return the answer of the engine's target."""
        answer: TargetAnswer | None = await self._engine.ask(NODE, list(question))
        return answer


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
        await self._engine.ask(EVENTS, raw)
