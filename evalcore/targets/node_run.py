"""Nodes of a flow, run: each when all its predecessors have run, independent ones side by side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from evalcore.errors import TargetError
from evalcore.model.evidence import NOTHING, UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import Reply, SkippedError
from evalcore.model.own_copy import own_copy, plain_value
from evalcore.targets.flow_answer import (
    AnswerError,
    block_evidence,
    json_value,
    sum_metrics,
    with_primary,
)
from evalcore.targets.flow_context import FlowContext
from evalcore.targets.node_calls import AskTarget, NodeCalls, NodeQuestion, log_call
from evalcore.targets.node_flow import NO_INPUT, Edge, Node, NodeFlow
from evalcore.targets.node_registry import NodeRegistry, node_arguments
from evalcore.trust.foreign_calls import ForeignError, call_foreign
from evalcore.workflow.conditions import Look
from evalcore.workflow.events import (
    BlockError,
    EventType,
    ProviderCall,
    Snapshot,
    by_block,
)
from evalcore.workflow.run_store import EventLog, RunStore
from evalcore.workflow.values import (
    MISSING,
    WorkflowState,
    at_path,
    parsed,
    text_of,
)

_KIND = "flow"
# What is wrong with the run, not with the node.
_NEVER_SURVIVED = frozenset({"recording"})


@dataclass(frozen=True, slots=True)
class NodeContext(FlowContext):
    """What a node's `run` is told: the flow's context, and where it stands.

    `outputs` are those of the nodes that have run; `config` is the node's over the variant's.
    """

    node_id: str = ""
    node_type: str = ""
    node_config: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> Mapping[str, Any]:
        """The variant's configuration, the node's own laid over it."""
        return {**self.variant.config, **self.node_config}


class NodeFailedError(TargetError):
    """A node failed for good."""


class _Answer(NamedTuple):
    value: Any
    metrics: Metrics = UNMEASURED


class NodeExecution:
    """One execution of a flow's nodes for one work item."""

    def __init__(
        self,
        flow: NodeFlow,
        registry: NodeRegistry,
        context: FlowContext,
        ask_target: AskTarget,
        store: RunStore,
    ) -> None:
        self._flow, self._registry, self._context = flow, registry, context
        self._ask_target = ask_target
        self._log = EventLog(store)
        self._calls: list[ProviderCall] = []
        self._errors: dict[str, list[str]] = {}
        self._metrics: dict[str, Metrics] = {}
        self._durations: dict[str, Metrics] = {}
        self._invocations: dict[str, int] = {}
        case_input = context.case_input
        inputs = case_input if isinstance(case_input, Mapping) else {"input": case_input}
        self._state = WorkflowState(inputs)

    async def run(self, primary_output: str | None) -> Evidence:
        """Return what the nodes left; raise `TargetError` if one fails for good, or none ran."""
        flow = self._flow
        await self._log.add(EventType.WORKFLOW_STARTED, workflow=flow.name)
        try:
            await self._run_all()
            evidence = self._evidence(primary_output)
        except (TargetError, AnswerError, asyncio.CancelledError) as error:
            reason = f"skipped: {error}" if isinstance(error, SkippedError) else str(error)
            await self._log.add(EventType.WORKFLOW_FAILED, message=reason or "cancelled")
            await self._log.save(self._snapshot("failed", reason or "cancelled"))
            raise
        await self._log.add(EventType.WORKFLOW_COMPLETED, output=evidence.output)
        await self._log.save(self._snapshot("completed", None))
        return evidence

    async def _run_all(self) -> None:
        tasks: dict[str, asyncio.Task[None]] = {}
        for node in self._flow.nodes:
            before = [tasks[edge.source] for edge in self._flow.into[node.id]]
            tasks[node.id] = asyncio.create_task(self._when_ready(node, before))
        try:
            done, _ = await asyncio.wait(tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        for task in tasks.values():
            if task in done and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _when_ready(self, node: Node, before: list[asyncio.Task[None]]) -> None:
        if before:
            # What fails there ends the flow, and this task with it.
            await asyncio.wait(before)
            if any(task.cancelled() or task.exception() is not None for task in before):
                raise asyncio.CancelledError
        into = self._flow.into[node.id]
        if into and not any(self._leads_on(edge) for edge in into):
            await self._log.add(EventType.BLOCK_SKIPPED, node.id)
            return
        await self._run_node(node)

    def _leads_on(self, edge: Edge) -> bool:
        """Whether the node before has run and the condition holds."""
        if edge.source not in self._state.outputs:
            return False
        if edge.when is None:
            return True
        try:
            return edge.when(self._look(edge.source))
        except BlockError as error:
            where = f"the edge {edge.source} → {edge.target}"
            raise NodeFailedError(_KIND, f"{where}: when: {error}") from error

    def _look(self, source: str) -> Look:
        """Return how conditions find values: in the output before, else by a node's id."""
        value = parsed(self._state.outputs[source])

        def look(path: str | None) -> Any:
            if path is None:
                return value
            at = at_path(value, path)
            return self._state.find(path) if at is MISSING else at

        return look

    async def _run_node(self, node: Node) -> None:
        self._invocations[node.id] = 1
        await self._log.add(EventType.BLOCK_STARTED, node.id, type=node.type)
        started = time.perf_counter()
        try:
            answer = await self._attempts(node)
        except NodeFailedError as error:
            self._errors.setdefault(node.id, []).append(str(error))
            await self._log.add(
                EventType.BLOCK_FAILED, node.id, kind=error.kind, message=error.message
            )
            if not node.policy.continue_on_error or error.kind in _NEVER_SURVIVED:
                raise
            answer = _Answer({"error": error.message})
        took_ms = round((time.perf_counter() - started) * 1000, 1)
        self._durations[node.id] = Metrics(latency_ms=took_ms)
        if answer.metrics is not UNMEASURED:
            self._metrics[node.id] = answer.metrics
        self._state.outputs[node.id] = answer.value
        await self._log.add(
            EventType.BLOCK_COMPLETED, node.id, output=text_of(answer.value), duration_ms=took_ms
        )

    async def _attempts(self, node: Node) -> _Answer:
        policy, attempt = node.policy, 1
        while True:
            try:
                async with asyncio.timeout(policy.timeout_s) as scope:
                    return await self._answer(node)
            except TimeoutError:
                if not scope.expired():
                    raise
                message = f"no output within {policy.timeout_s:g} s (policy.timeout_ms)"
                error = NodeFailedError("timeout", f"{_named(node)}: {message}")
            except NodeFailedError as failed:
                error = failed
            if attempt >= policy.attempts or error.kind in _NEVER_SURVIVED:
                raise error
            message = f"attempt {attempt}: {error.message}"
            self._errors.setdefault(node.id, []).append(message)
            await self._log.add(
                EventType.BLOCK_RETRIED, node.id, attempt=attempt, message=error.message
            )
            attempt += 1
            await asyncio.sleep(policy.backoff_s)

    async def _answer(self, node: Node) -> _Answer:
        """Return a node's output; raise `NodeFailedError`, or `SkippedError` as it is."""
        calls = NodeCalls(self._context.complete, node.id, self._calls, self._log)
        try:
            # What a node changes is no output of another one, nor the input of a second attempt.
            value = own_copy(self._input(node))
            run = self._registry.find(node.type)
            if run is None:
                return await self._ask_target_of(node, value)
            arguments, keywords = node_arguments(run, value, self._context_of(node, calls))
            returned = await call_foreign(run, *arguments, **keywords)
            if isinstance(returned, Evidence):
                return _answered(returned, measured=not calls.count)
            return _Answer(json_value(_plain(returned)))
        except AnswerError as error:
            raise NodeFailedError(_KIND, f"{_named(node)}: {error}") from error
        except ForeignError as error:
            cause = error.__cause__
            if isinstance(cause, TargetError):
                raise _failed(node, cause) from cause
            raise NodeFailedError(_KIND, f"{_named(node)}: {error}") from cause
        except TargetError as error:
            raise _failed(node, error) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not the item's cancellation: one that leaked out of a node.
            message = f"{_named(node)}: CancelledError: its own task was cancelled"
            raise NodeFailedError(_KIND, message) from None

    async def _ask_target_of(self, node: Node, value: Any) -> _Answer:
        """Return the answer of the target that has the name of the node's type."""
        question = NodeQuestion(node.id, node.type, json_value(value), json_value(node.config))
        answer = await self._ask_target(question)
        if answer is not None:
            self._calls.extend(answer.calls)
            for call in answer.calls:
                await log_call(self._log, call)
            return _answered(answer.evidence, measured=not answer.calls)
        types = ", ".join(self._registry) or "nothing"
        raise NodeFailedError(
            _KIND,
            f"node '{node.id}': nothing runs nodes of type '{node.type}' (registered: {types}); "
            f"register an object with type '{node.type}' and run(input, *, context) in the "
            f"factory's 'register', or configure a target that is called '{node.type}'",
        )

    def _input(self, node: Node) -> Any:
        """Return the input of a node: its own, filled, else the outputs of its predecessors."""
        outputs = self._state.outputs
        if node.input is not NO_INPUT:
            return self._flow.references.filled(node.input, outputs)
        sources = dict.fromkeys(edge.source for edge in self._flow.into[node.id])
        if not sources:
            return self._context.case_input
        if len(sources) == 1:
            return outputs[next(iter(sources))]
        return {source: outputs[source] for source in sources if source in outputs}

    def _context_of(self, node: Node, calls: NodeCalls) -> NodeContext:
        names = [field.name for field in fields(FlowContext)]
        values = {name: getattr(self._context, name) for name in names}
        live = self._context.live
        return NodeContext(
            **{**values, "live": None if live is None else replace(live, complete=calls)},
            node_id=node.id,
            node_type=node.type,
            node_config=node.config,
            outputs=dict(self._state.outputs),
        )

    def _evidence(self, primary_output: str | None) -> Evidence:
        outputs = self._state.outputs
        ran = {node.id: outputs[node.id] for node in self._flow.nodes if node.id in outputs}
        name = None if primary_output is None else primary_output
        if name is not None and not any(
            name == node or name.startswith(f"{node}.") for node in ran
        ):
            raise AnswerError(f"primary output: node '{name}' was skipped, so it has no output")
        # Each as `{output}`: what a node returns may have that key itself.
        evidence = block_evidence({node: {"output": value} for node, value in ran.items()})
        measured = {**self._durations, **self._metrics, **by_block(self._calls)}
        # In the order of the flow, whichever of them was first this time.
        order = [node.id for node in self._flow.nodes]
        ran_times = {node: self._invocations[node] for node in order if node in self._invocations}
        details = {**evidence.details, "invocations": ran_times}
        if self._errors:
            details["errors"] = [text for node in order for text in self._errors.get(node, ())]
        if self._calls:
            details["calls"] = [call.as_json() for call in self._calls]
        evidence = evidence._replace(
            metrics=self._sums(), block_metrics=measured or NOTHING, details=details
        )
        return evidence if name is None else with_primary(evidence, name)

    def _sums(self) -> Metrics:
        """Return what targets measured that call no provider; the engine adds the calls' sums.

        The latency is that of the whole flow, which its caller measures.
        """
        if not self._metrics:
            return UNMEASURED
        sums = sum_metrics({**self._metrics, **by_block(self._calls)})
        return replace(sums, latency_ms=None, ttft_ms=None)

    def _snapshot(self, state: str, error: str | None) -> Snapshot:
        values = dict(self._state.outputs)
        texts = {node: text_of(value) for node, value in values.items()}
        scope = {"inputs": self._state.inputs, "outputs": values, "shared": {}}
        return Snapshot(self._log.sequence, state, texts, scope, error)


def _answered(evidence: Evidence, *, measured: bool) -> _Answer:
    """Return evidence as a node's output; the engine measures provider calls itself."""
    if evidence.output is None:
        raise AnswerError("it gave no output")
    return _Answer(evidence.output, evidence.metrics if measured else UNMEASURED)


def _plain(value: Any) -> Any:
    """Return a model's reply as its text, any other value in its JSON form."""
    return value.text if isinstance(value, Reply) else plain_value(value)


def _failed(node: Node, error: TargetError) -> TargetError:
    if isinstance(error, SkippedError | NodeFailedError):
        return error
    return NodeFailedError(error.kind, f"{_named(node)}: {error.message}")


def _named(node: Node) -> str:
    return f"node '{node.id}' ({node.type})"
