"""A flow of nodes: read, checked, and run by the workflow engine, side by side where they can."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from inspect import isclass
from itertools import pairwise
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError

from evalcore.errors import TargetError
from evalcore.jsonvalues import own_copy, plain_value
from evalcore.model.evidence import UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import Complete, ProviderError, Reply, Request, SkippedError
from evalcore.shapes import Declared, Listed, NonEmpty, Text, adapter, explain
from evalcore.targets.answers import (
    AnswerError,
    block_evidence,
    json_value,
    sum_metrics,
    with_primary,
)
from evalcore.targets.function_context import FlowContext, called
from evalcore.trust.imports import arguments_for
from evalcore.wording import path_text, suggest
from evalcore.workflow.conditions import condition_mistakes, holds
from evalcore.workflow.context import Context, EngineServices
from evalcore.workflow.definition import Block, Conditions, WorkflowDefinition, group_of
from evalcore.workflow.engine import WorkflowExecution, run_workflow
from evalcore.workflow.events import BlockError, EventType, ProviderCall, by_block
from evalcore.workflow.run_store import EventLog
from evalcore.workflow.values import MISSING, at_path, parsed, text_of

PRIMARY_KEYS: Final = (
    "primary_output",
    "primaryOutput",
    "primary_output_node_id",
    "primaryOutputNodeId",
)
WRAPPER_KEYS: Final = ("flow", "register", *PRIMARY_KEYS)


class Node(Declared):
    """A node; without an `input` it gets the outputs of the nodes before it."""

    id: Text
    type: Text
    input: Any = None
    config: dict[str, Any] = Field(default_factory=dict)
    description: Any = None


def _condition(written: Any) -> Any:
    """Return the short form `{operator: {var, value}}` as the long one."""
    if not isinstance(written, Mapping) or len(written) != 1:
        return written
    ((operator, compared),) = written.items()
    if not isinstance(compared, Mapping) or not set(compared) <= {"var", "value"}:
        return written
    given = {"value": compared["value"]} if "value" in compared else {}
    return {"operator": operator, "eval_key": compared.get("var"), **given}


class Edge(Declared):
    """A way from a node to another, taken if its condition holds."""

    source: Text = Field(validation_alias="from")
    target: Text = Field(validation_alias="to")
    when: Annotated[Conditions | None, BeforeValidator(_condition)] = None


class _WrittenFlow(Declared):
    name: str = "flow"
    description: Any = None
    nodes: NonEmpty[Node]
    edges: Listed[Edge] = ()


@dataclass(frozen=True, slots=True)
class NodeFlow:
    """A sound flow: `nodes` in an order in which each comes after its predecessors.

    `into` has the edges that lead to a node; `references` finds `{node.path}` in an input.
    """

    name: str
    nodes: tuple[Node, ...]
    into: Mapping[str, tuple[Edge, ...]]
    references: re.Pattern[str]


def names_one(path: str, ids: Iterable[str]) -> bool:
    """Whether a path (`node`, `node.field`) begins with one of these ids."""
    return any(path == name or path.startswith(f"{name}.") for name in ids)


def is_node_flow(value: Any) -> bool:
    """Whether a value is a flow of nodes."""
    return isinstance(value, Mapping) and ("nodes" in value or "edges" in value)


def read_node_flow(raw: Mapping[str, Any]) -> NodeFlow:
    """Return the flow that a mapping describes; raise `AnswerError` that says what is wrong."""
    try:
        flow = adapter(_WrittenFlow).validate_python(dict(raw))
    except ValidationError as error:
        loc, message = next(iter(explain(error, dict(raw), _WrittenFlow)))
        raise AnswerError(f"{path_text(loc) or 'the flow'}: {message}") from None
    ids = [node.id for node in flow.nodes]
    for name in ids:
        if ids.count(name) > 1:
            raise AnswerError(f"two nodes have the id '{name}'; ids are unique")
    # Without any edge each node follows the one before it in the list.
    chain = [Edge.model_construct(source=a, target=b, when=None) for a, b in pairwise(ids)]
    for position, edge in enumerate(flow.edges):
        where = f"edges[{position}]"
        for key, name in (("from", edge.source), ("to", edge.target)):
            if name not in ids:
                raise AnswerError(f"{where}: '{key}' names no node: {name!r}.{suggest(name, ids)}")
        for mistake in condition_mistakes(edge.when, ("when",)):
            raise AnswerError(f"{where}.{path_text(mistake.loc)}: {mistake.message}")
    edges = flow.edges or chain
    into = {name: tuple(edge for edge in edges if edge.target == name) for name in ids}
    longest = "|".join(map(re.escape, sorted(ids, key=len, reverse=True)))
    # `{{plan}}` is the text `{plan}`.
    references = re.compile(rf"\{{(\{{)?({longest})((?:\.[\w-]+|\[\d+\])*)\}}(?(1)\}})")
    ordered = tuple(_in_order(flow.nodes, into))
    _check_references(ordered, into, references)
    return NodeFlow(flow.name, ordered, into, references)


def _in_order(nodes: tuple[Node, ...], into: Mapping[str, tuple[Edge, ...]]) -> Iterator[Node]:
    """Yield the nodes so that each follows its predecessors, else in their own order."""
    position = {node.id: number for number, node in enumerate(nodes)}
    sorter = TopologicalSorter({name: [each.source for each in into[name]] for name in position})
    try:
        sorter.prepare()
    except CycleError as error:
        raise AnswerError(f"the edges go round: {' → '.join(error.args[1])}") from None
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        name = min(ready, key=position.__getitem__)
        ready.remove(name)
        sorter.done(name)
        yield nodes[position[name]]


def _check_references(
    nodes: tuple[Node, ...], into: Mapping[str, tuple[Edge, ...]], references: re.Pattern[str]
) -> None:
    """Raise `AnswerError` for an input that refers to what has not run before."""
    before: dict[str, set[str]] = {}
    for node in nodes:
        sources = {edge.source for edge in into[node.id]}
        before[node.id] = sources.union(*(before[source] for source in sources))
        for name in _named_in(node.input, references):
            if name not in before[node.id]:
                raise AnswerError(
                    f"node '{node.id}': its input refers to '{name}', which does not run before "
                    f"it; add the edge {name} → {node.id}, or write {{{{{name}}}}} for the text"
                )


def _named_in(value: Any, references: re.Pattern[str]) -> Iterator[str]:
    """Yield the nodes that an input refers to."""
    if isinstance(value, str):
        yield from (match[2] for match in references.finditer(value) if match[1] is None)
    elif isinstance(value, Mapping | list | tuple):
        for member in value.values() if isinstance(value, Mapping) else value:
            yield from _named_in(member, references)


def _filled(value: Any, references: re.Pattern[str], outputs: Mapping[str, Any]) -> Any:
    """Return an input with its references replaced, within lists and mappings too.

    A text that is one reference becomes the value itself; within a text other values than text are
    JSON. A node that was skipped stands for null, in a text for nothing. Raise `AnswerError` for a
    path that leads nowhere.
    """
    if isinstance(value, Mapping):
        return {key: _filled(member, references, outputs) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(member, references, outputs) for member in value]
    if not isinstance(value, str):
        return value
    whole = references.fullmatch(value)
    if whole is not None and whole[1] is None:
        return _referred(whole, outputs)

    def text(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[0][1:-1]
        found = _referred(match, outputs)
        return "" if found is None else text_of(found)

    return references.sub(text, value)


def _referred(match: re.Match[str], outputs: Mapping[str, Any]) -> Any:
    value, path = outputs.get(match[2]), match[3].removeprefix(".")
    if match[2] not in outputs or not path:
        return value
    member = at_path(value, path)
    if member is MISSING:
        has = f"; it has {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""
        raise AnswerError(f"{match[0]}: the output of '{match[2]}' has no '{path}'{has}")
    return member


class NodeRegistry:
    """The types of nodes of one work item. The last registration of a type wins."""

    def __init__(self) -> None:
        self.runs: dict[str, Callable[..., Any]] = {}

    def register(self, node: Any, run: Any = None) -> None:
        """Register a node: an object with `type` and `run`, or a type and a function.

        Raises `TypeError` for anything else.
        """
        is_type = isinstance(node, str)
        type_ = node if is_type else getattr(node, "type", None)
        function = run if is_type else getattr(node, "run", None)
        if isclass(node) or not isinstance(type_, str) or not type_ or not callable(function):
            raise TypeError(
                "registry.register(node) takes an object with 'type' and 'run(input, *, context)', "
                f"or a type and a function; it got an object of type {type(node).__name__}"
            )
        self.runs[type_] = function


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
    """Makes a node's provider calls and notes them; those of a running flow are events, too."""

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
            await self.note(call._replace(attempts=error.attempts, error=str(error)))
            raise
        answered = call._replace(model=reply.model or call.model, metrics=reply.metrics)
        await self.note(answered._replace(attempts=reply.attempts, recorded=reply.recorded))
        return reply

    async def note(self, call: ProviderCall) -> None:
        """Keep a call of the node."""
        self._calls.append(call)
        if self._log is not None:
            await self._log.add_call(call, call.output_id)


_KIND: Final = "flow"
_RUN_NAMES: Final = {"input": "input", "context": "context", "ctx": "context"}


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


class _NodeBlock(Block):
    """A node as a block of a workflow; it has no time limit of its own."""

    answer: Callable[[Context], Awaitable[Any]]

    async def run(self, context: Context) -> Any:
        return await self.answer(context)


class NodeExecution:
    """One execution of a flow's nodes for one work item."""

    def __init__(
        self, flow: NodeFlow, registry: NodeRegistry, context: FlowContext, ask: AskTarget
    ) -> None:
        self._flow, self._registry, self._context, self._ask = flow, registry, context, ask
        self._metrics: dict[str, Metrics] = {}

    async def run(self, services: EngineServices, primary_output: str | None) -> Evidence:
        """Return what the nodes left; raise `TargetError` if one fails, or if none ran."""
        blocks = {
            node.id: _NodeBlock.model_construct(
                id=node.id,
                type=node.type,
                timeout_seconds=math.inf,
                answer=partial(self._answer, node),
            )
            for node in self._flow.nodes
        }
        case_input = self._context.case_input
        finished = await run_workflow(
            WorkflowDefinition(blocks, name=self._flow.name),
            case_input if isinstance(case_input, Mapping) else {"input": case_input},
            services,
            way=self._run_all,
        )
        ran = {node.id: finished.outputs[node.id] for node in self._flow.nodes
               if node.id in finished.outputs}  # fmt: skip
        if primary_output is not None and not names_one(primary_output, ran):
            skipped = f"node '{primary_output}' was skipped, so it has no output"
            raise AnswerError(f"primary output: {skipped}")
        # Each as `{output}`: what a node returns may have that key itself.
        evidence = block_evidence({node: {"output": value} for node, value in ran.items()})
        durations = {node: Metrics(latency_ms=ms) for node, ms in finished.durations_ms.items()}
        measured = {**self._metrics, **by_block(finished.calls)}
        details = {**evidence.details, "invocations": dict.fromkeys(ran, 1)}
        if finished.calls:
            details["calls"] = [call.as_json() for call in finished.calls]
        # The engine adds the calls' sums, and the caller the latency of the whole flow.
        sums = sum_metrics(measured) if self._metrics else UNMEASURED
        evidence = evidence._replace(
            metrics=replace(sums, latency_ms=None, ttft_ms=None),
            block_metrics={**durations, **measured},
            details=details,
        )
        return evidence if primary_output is None else with_primary(evidence, primary_output)

    async def _run_all(self, execution: WorkflowExecution) -> Any:
        """Run each node when all before it have ended; return the output of the last that ran."""
        tasks: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for node in self._flow.nodes:
                    before = [tasks[edge.source] for edge in self._flow.into[node.id]]
                    way = self._when_ready(node, before, execution)
                    tasks[node.id] = group.create_task(way)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        outputs = execution.state.outputs
        return next((outputs[name] for name in reversed(tasks) if name in outputs), None)

    async def _when_ready(
        self, node: Node, before: list[asyncio.Task[None]], execution: WorkflowExecution
    ) -> None:
        if before:
            await asyncio.wait(before)
        into = self._flow.into[node.id]
        if into and not any(_leads_on(edge, execution) for edge in into):
            await execution.log.add(EventType.BLOCK_SKIPPED, node.id)
            return
        try:
            await execution.run_block(execution.definition.blocks[node.id])
        except BlockError as error:
            message = f"node '{node.id}' ({node.type}): {error.message}"
            kind = error.kind
            await execution.log.add(EventType.BLOCK_FAILED, node.id, kind=kind, message=message)
            raise TargetError(kind, message) from error

    async def _answer(self, node: Node, context: Context) -> Any:
        """Return a node's output; raise `BlockError`, or `SkippedError` as it is."""
        calls = NodeCalls(self._context.complete, node.id, context.calls, context.log)
        try:
            return await self._returned(node, calls, context.state.outputs)
        except SkippedError:
            raise
        except TargetError as error:
            raise BlockError(error.kind, error.message) from error
        except AnswerError as error:
            raise BlockError(_KIND, str(error)) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not the item's cancellation: one that leaked out of a node.
            raise BlockError(_KIND, "CancelledError: its own task was cancelled") from None

    async def _returned(self, node: Node, calls: NodeCalls, outputs: Mapping[str, Any]) -> Any:
        # What a node changes is no output of another one.
        value = own_copy(self._input(node, outputs))
        run = self._registry.runs.get(node.type)
        if run is None:
            return await self._answer_of_target(node, value, calls)
        values = {"input": value, "context": self._context_of(node, calls, outputs)}
        arguments, keywords = arguments_for(run, values, ["input"], _RUN_NAMES, ["context"])
        returned = await called(_KIND, run, *arguments, **keywords)
        if isinstance(returned, Evidence):
            return self._output_of(node, returned, measured=not calls.count)
        return json_value(returned.text if isinstance(returned, Reply) else plain_value(returned))

    def _output_of(self, node: Node, evidence: Evidence, *, measured: bool) -> Any:
        """Return evidence as a node's output; the engine measures provider calls itself."""
        if evidence.output is None:
            raise AnswerError("it gave no output")
        if measured and evidence.metrics is not UNMEASURED:
            self._metrics[node.id] = evidence.metrics
        return evidence.output

    async def _answer_of_target(self, node: Node, value: Any, calls: NodeCalls) -> Any:
        """Return the answer of the target that has the name of the node's type."""
        question = NodeQuestion(node.id, node.type, json_value(value), json_value(node.config))
        answer = await self._ask(question)
        if answer is None:
            types = ", ".join(self._registry.runs) or "nothing"
            raise AnswerError(
                f"nothing runs nodes of this type (registered: {types}); register an object with "
                f"type '{node.type}' and run(input, *, context) in the factory's 'register', or "
                f"configure a target that is called '{node.type}'"
            )
        for call in answer.calls:
            await calls.note(call)
        return self._output_of(node, answer.evidence, measured=not answer.calls)

    def _input(self, node: Node, outputs: Mapping[str, Any]) -> Any:
        """Return the input of a node: its own, filled, else the outputs of its predecessors."""
        if "input" in node.model_fields_set:
            return _filled(node.input, self._flow.references, outputs)
        sources = dict.fromkeys(edge.source for edge in self._flow.into[node.id])
        if not sources:
            return self._context.case_input
        if len(sources) == 1:
            return outputs[next(iter(sources))]
        return {source: outputs[source] for source in sources if source in outputs}

    def _context_of(self, node: Node, calls: NodeCalls, outputs: Mapping[str, Any]) -> NodeContext:
        values = {each.name: getattr(self._context, each.name) for each in fields(FlowContext)}
        return NodeContext(
            **{**values, "complete": calls},
            node_id=node.id,
            node_type=node.type,
            node_config=node.config,
            outputs=dict(outputs),
        )


def _leads_on(edge: Edge, execution: WorkflowExecution) -> bool:
    """Whether the node before has run and the condition holds.

    Its paths are looked up in that node's output, else by a node's id.
    """
    outputs = execution.state.outputs
    if edge.source not in outputs:
        return False
    value, group = parsed(outputs[edge.source]), group_of(edge.when)

    def look(path: str | None) -> Any:
        if path is None:
            return value
        at = at_path(value, path)
        return execution.state.find(path) if at is MISSING else at

    return group is None or holds(group, look)
