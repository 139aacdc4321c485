"""A flow of nodes: read, checked, and run, independent nodes side by side."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import isclass
from itertools import pairwise
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field, ValidationError

from evalcore.declared.base import Declared
from evalcore.errors import TargetError
from evalcore.jsonvalues import own_copy, plain_value
from evalcore.model.evidence import NOTHING, UNMEASURED, Evidence, Metrics
from evalcore.model.exchange import Complete, ProviderError, Reply, Request, SkippedError
from evalcore.shapes import adapter, explain
from evalcore.targets.answers import (
    AnswerError,
    block_evidence,
    json_value,
    sum_metrics,
    with_primary,
)
from evalcore.targets.function_context import FlowContext, arguments_for
from evalcore.trust.imports import ForeignError, call_foreign
from evalcore.wording import path_text, suggest
from evalcore.workflow.conditions import OPERATORS, Look, condition_holds
from evalcore.workflow.definition import BlockCondition
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

When = Callable[[Look], bool]
"""Whether the condition holds for what stands at its paths."""

_FORMS: Final = (
    "a condition is {eval_key, operator, value}, {combinator, conditions}, {equals: {var, value}}, "
    "{and: […]}, {or: […]} or {not: …}"
)


def read_when(raw: Any, where: str) -> When:
    """Return a condition; raise `AnswerError` if it is none.

    `{eval_key, operator, value}`, a list of those (all hold), `{combinator, conditions}`; or
    `{equals: {var, value}}` with any operator, `{and: […]}`, `{or: […]}`, `{not: …}`.
    """
    if isinstance(raw, list | tuple):
        raw = {"and": raw}
    named = dict(raw) if isinstance(raw, Mapping) else {}
    if "conditions" in named and set(named) <= {"combinator", "conditions"}:
        named = {named.get("combinator") or "and": named["conditions"]}
    if "operator" in named and set(named) <= {"eval_key", "evalKey", "operator", "value"}:
        path = named.get("eval_key", named.get("evalKey"))
        return _comparison(path, named["operator"], named.get("value"), where)
    word, inner = next(iter(named.items())) if len(named) == 1 else ("", None)
    if word == "not":
        condition = read_when(inner, f"{where}.not")
        return lambda look: not condition(look)
    if word in ("and", "or") and isinstance(inner, list | tuple):
        conditions = [read_when(each, f"{where}[{n}]") for n, each in enumerate(inner)]
        combined = any if word == "or" and conditions else all
        return lambda look: combined(condition(look) for condition in conditions)
    if word in OPERATORS and isinstance(inner, Mapping) and set(inner) <= {"var", "value"}:
        return _comparison(inner.get("var"), word, inner.get("value"), where)
    raise AnswerError(f"{where}: {_FORMS}; unknown: '{', '.join(map(str, named)) or raw}'")


def _comparison(path: Any, operator: Any, value: Any, where: str) -> When:
    if operator not in OPERATORS:
        hint = suggest(operator, OPERATORS)
        raise AnswerError(f"{where}: unknown operator '{operator}'.{hint}")
    if path is not None and not isinstance(path, str):
        raise AnswerError(f"{where}: a path is a text, not {path!r}")
    condition = BlockCondition.model_construct(eval_key=path, operator=operator, value=value)
    return lambda look: condition_holds(condition, look)


_PATH: Final = r"(?:\.[\w-]+|\[\d+\])*"


class References:
    """Finds and replaces references to these nodes; any other braces stay as they are."""

    def __init__(self, ids: Sequence[str]) -> None:
        longest = sorted(ids, key=len, reverse=True)
        name = "|".join(map(re.escape, longest))
        reference = rf"(?:{name}){_PATH}"
        self._ids = longest
        self._pattern = re.compile(rf"\{{\{{({reference})\}}\}}|\{{({reference})\}}")

    def named_in(self, value: Any) -> Iterator[str]:
        """Yield the nodes that an input refers to."""
        if isinstance(value, str):
            for match in self._pattern.finditer(value):
                if match[2] is not None:
                    yield self._split(match[2])[0]
        elif isinstance(value, Mapping):
            for member in value.values():
                yield from self.named_in(member)
        elif isinstance(value, list | tuple):
            for member in value:
                yield from self.named_in(member)

    def filled(self, value: Any, outputs: Mapping[str, Any]) -> Any:
        """Return an input with its references replaced, within lists and mappings too.

        A text that is one reference becomes the value itself; within a text other values than text
        are JSON. A node that was skipped stands for null, in a text for nothing. `{{plan}}` is the
        text `{plan}`. Raise `AnswerError` for a path that leads nowhere.
        """
        if isinstance(value, str):
            whole = self._pattern.fullmatch(value)
            if whole is not None and whole[2] is not None:
                return self._value(whole[2], outputs)
            return self._pattern.sub(lambda match: self._text(match, outputs), value)
        if isinstance(value, Mapping):
            return {key: self.filled(member, outputs) for key, member in value.items()}
        if isinstance(value, list | tuple):
            return [self.filled(member, outputs) for member in value]
        return value

    def _text(self, match: re.Match[str], outputs: Mapping[str, Any]) -> str:
        if match[2] is None:
            return f"{{{match[1]}}}"
        value = self._value(match[2], outputs)
        return "" if value is None else text_of(value)

    def _value(self, reference: str, outputs: Mapping[str, Any]) -> Any:
        node, path = self._split(reference)
        if node not in outputs:
            return None
        value = outputs[node]
        if not path:
            return value
        member = at_path(value, path)
        if member is MISSING:
            has = f"; it has {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""
            raise AnswerError(f"{{{reference}}}: the output of '{node}' has no '{path}'{has}")
        return member

    def _split(self, reference: str) -> tuple[str, str]:
        """Return the node and the path; the longest id that fits."""
        for name in self._ids:
            rest = reference.removeprefix(name)
            if rest != reference and (not rest or rest[0] in ".["):
                return name, rest.removeprefix(".")
        return reference, ""


PRIMARY_KEYS: Final = (
    "primary_output",
    "primaryOutput",
    "primary_output_node_id",
    "primaryOutputNodeId",
)
WRAPPER_KEYS: Final = ("flow", "register", *PRIMARY_KEYS)
NO_INPUT: Final = object()
_Milliseconds = Annotated[float, Field(ge=0, lt=1e9)]
_Text = Annotated[str, Field(min_length=1)]


class NodeRetry(Declared):
    """How often a node is tried."""

    max_attempts: int = Field(default=1, ge=1)
    backoff_ms: _Milliseconds = 0.0


class NodePolicy(Declared):
    """How often a node is tried and how long; whether the flow goes on when it fails."""

    timeout_ms: _Milliseconds | None = None
    continue_on_error: bool = False
    retry: NodeRetry = NodeRetry()


class Node(Declared):
    """A node. `input` is `NO_INPUT` where none is written."""

    id: _Text
    type: _Text
    input: Any = NO_INPUT
    config: dict[str, Any] = Field(default_factory=dict)
    description: Any = None
    policy: NodePolicy = NodePolicy()


class _WrittenEdge(Declared):
    source: _Text = Field(validation_alias="from")
    target: _Text = Field(validation_alias="to")
    when: Any = None


class _WrittenFlow(Declared):
    name: str = "flow"
    description: Any = None
    nodes: Annotated[list[Node], Field(min_length=1)]
    edges: list[_WrittenEdge] = Field(default_factory=list)


class Edge(NamedTuple):
    """A way from a node to another, taken if its condition holds."""

    source: str
    target: str
    when: When | None


@dataclass(frozen=True, slots=True)
class NodeFlow:
    """A sound flow: `nodes` in an order in which each comes after its predecessors.

    `into` has the edges that lead to a node.
    """

    name: str
    nodes: tuple[Node, ...]
    into: Mapping[str, tuple[Edge, ...]]
    references: References


def names_one(path: str, ids: Iterable[str]) -> bool:
    """Whether a path (`node`, `node.field`) begins with one of these ids."""
    return any(path == name or path.startswith(f"{name}.") for name in ids)


def as_wrapper(value: Any) -> Mapping[str, Any] | None:
    """Return what a factory returned as `{flow, register, …}`; None if it is no such thing.

    Objects, dataclasses and models with these attributes are taken as well.
    """
    if isinstance(value, Mapping):
        return value if "flow" in value else None
    if isinstance(value, type) or callable(value) or not hasattr(value, "flow"):
        return None
    members = {key: getattr(value, key) for key in WRAPPER_KEYS if hasattr(value, key)}
    return {key: member for key, member in members.items() if key == "flow" or member is not None}


def as_nodes(value: Any) -> Mapping[str, Any] | None:
    """Return a flow of nodes as a mapping; None if the value is none."""
    flow = _members(value, _WrittenFlow)
    return flow if isinstance(flow, Mapping) and ("nodes" in flow or "edges" in flow) else None


def read_node_flow(raw: Mapping[str, Any]) -> NodeFlow:
    """Return the flow that a mapping describes; raise `AnswerError` that says what is wrong."""
    written = dict(raw)
    for key, shape in (("nodes", Node), ("edges", _WrittenEdge)):
        if isinstance(written.get(key), list | tuple):
            written[key] = [_members(each, shape) for each in written[key]]
    try:
        flow = adapter(_WrittenFlow).validate_python(written)
    except ValidationError as error:
        loc, message = next(iter(explain(error, written, _WrittenFlow)))
        raise AnswerError(f"{path_text(loc) or 'the flow'}: {message}") from None
    nodes, ids = flow.nodes, [node.id for node in flow.nodes]
    for name in ids:
        if ids.count(name) > 1:
            raise AnswerError(f"two nodes have the id '{name}'; ids are unique")
    # Without any edge each node follows the one before it in the list.
    edges = [Edge(a, b, None) for a, b in pairwise(ids)] if not flow.edges else []
    for position, edge in enumerate(flow.edges):
        where = f"edges[{position}]"
        for key, name in (("from", edge.source), ("to", edge.target)):
            if name not in ids:
                raise AnswerError(f"{where}: '{key}' names no node: {name!r}.{suggest(name, ids)}")
        when = None if edge.when is None else read_when(edge.when, f"{where}.when")
        edges.append(Edge(edge.source, edge.target, when))
    ordered = _in_order(nodes, edges)
    references = References(ids)
    _check_references(ordered, edges, references)
    into = {name: tuple(edge for edge in edges if edge.target == name) for name in ids}
    return NodeFlow(flow.name, tuple(ordered), into, references)


def _members(value: Any, shape: type[Declared]) -> Any:
    """Return a mapping, or the attributes of an object, without null; other values as they are."""
    if isinstance(value, Mapping):
        members = dict(value)
    elif isinstance(value, str | int | list | tuple | type) or value is None:
        return value
    else:
        keys = [*shape.model_fields, "from_", "to"]
        members = {key.rstrip("_"): getattr(value, key) for key in keys if hasattr(value, key)}
        members = {key: member for key, member in members.items() if member is not None}
    return {
        key: _plain_part(member)
        for key, member in members.items()
        if member is not None or key == "input"
    }


def _plain_part(member: Any) -> Any:
    if isinstance(member, tuple):
        return list(member)
    return dict(member) if isinstance(member, Mapping) else member


def _in_order(nodes: list[Node], edges: list[Edge]) -> list[Node]:
    """Return the nodes so that each follows its predecessors, else in their own order."""
    waiting = {node.id: {edge.source for edge in edges if edge.target == node.id} for node in nodes}
    ordered: list[Node] = []
    left = list(nodes)
    while left:
        node = next((ready for ready in left if not waiting[ready.id]), None)
        if node is None:
            raise AnswerError(f"the edges go round: {_cycle(left, waiting)}")
        left.remove(node)
        ordered.append(node)
        for before in waiting.values():
            before.discard(node.id)
    return ordered


def _cycle(left: list[Node], waiting: Mapping[str, set[str]]) -> str:
    way = [left[0].id]
    while way[-1] not in way[:-1]:
        way.append(min(waiting[way[-1]]))
    return " → ".join(reversed(way[way.index(way[-1]) :]))


def _check_references(nodes: list[Node], edges: list[Edge], references: References) -> None:
    """Raise `AnswerError` for an input that refers to what has not run before."""
    before: dict[str, set[str]] = {}
    for node in nodes:
        sources = {edge.source for edge in edges if edge.target == node.id}
        before[node.id] = sources.union(*(before[source] for source in sources))
        named = references.named_in(node.input)
        later = [name for name in named if name not in before[node.id]]
        if later:
            raise AnswerError(
                f"node '{node.id}': its input refers to '{later[0]}', which does not run before "
                f"it; add the edge {later[0]} → {node.id}, or write {{{{{later[0]}}}}} for the text"
            )


_FORM: Final = (
    "registry.register(node) takes an object with 'type' and 'run(input, *, context)', or a type "
    "and a function"
)
_RUN_NAMES: Final = {"input": "input", "context": "context", "ctx": "context"}


class NodeRegistry:
    """The types of nodes of one work item. The last registration of a type wins."""

    def __init__(self) -> None:
        self.runs: dict[str, Callable[..., Any]] = {}

    def register(self, node: Any, run: Any = None) -> None:
        """Register a node: an object (or mapping) with `type` and `run`, or a type and a function.

        Raises `TypeError` for anything else.
        """
        if isinstance(node, str):
            type_, function = node, run if callable(run) else _member(run, "run")
        else:
            type_, function = _member(node, "type"), run or _member(node, "run")
        if isclass(node):
            raise TypeError(f"{_FORM}; {node.__name__} is a class: pass an instance")
        if not isinstance(type_, str) or not type_ or not callable(function):
            raise TypeError(f"{_FORM}; it got {_described(node)}")
        self.runs[type_] = function


def _described(node: Any) -> str:
    """Return a value, of an object its type: its text may hold an address in memory."""
    plain = node is None or isinstance(node, str | int | float | Mapping)
    return f"{node!r:.80}" if plain else f"an object of type {type(node).__name__}"


def _member(node: Any, name: str) -> Any:
    return node.get(name) if isinstance(node, Mapping) else getattr(node, name, None)


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
        timeout_s = None if policy.timeout_ms is None else policy.timeout_ms / 1000
        while True:
            try:
                async with asyncio.timeout(timeout_s) as scope:
                    return await self._answer(node)
            except TimeoutError:
                if not scope.expired():
                    raise
                message = f"no output within {timeout_s:g} s (policy.timeout_ms)"
                error = NodeFailedError("timeout", f"{_named(node)}: {message}")
            except NodeFailedError as failed:
                error = failed
            if attempt >= policy.retry.max_attempts or error.kind in _NEVER_SURVIVED:
                raise error
            message = f"attempt {attempt}: {error.message}"
            self._errors.setdefault(node.id, []).append(message)
            await self._log.add(
                EventType.BLOCK_RETRIED, node.id, attempt=attempt, message=error.message
            )
            attempt += 1
            await asyncio.sleep(policy.retry.backoff_ms / 1000)

    async def _answer(self, node: Node) -> _Answer:
        """Return a node's output; raise `NodeFailedError`, or `SkippedError` as it is."""
        calls = NodeCalls(self._context.complete, node.id, self._calls, self._log)
        try:
            # What a node changes is no output of another one, nor the input of a second attempt.
            value = own_copy(self._input(node))
            run = self._registry.runs.get(node.type)
            if run is None:
                return await self._ask_target_of(node, value)
            values = {"input": value, "context": self._context_of(node, calls)}
            arguments, keywords = arguments_for(run, values, ["input"], _RUN_NAMES, ["context"])
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
        types = ", ".join(self._registry.runs) or "nothing"
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
        if primary_output is not None and not names_one(primary_output, ran):
            skipped = f"node '{primary_output}' was skipped, so it has no output"
            raise AnswerError(f"primary output: {skipped}")
        # Each as `{output}`: what a node returns may have that key itself.
        evidence = block_evidence({node: {"output": value} for node, value in ran.items()})
        measured = {**self._durations, **self._metrics, **by_block(self._calls)}
        details = {**evidence.details, "invocations": dict.fromkeys(ran, 1)}
        if self._errors:
            # In the order of the flow, whichever of them was first this time.
            order = [node.id for node in self._flow.nodes]
            details["errors"] = [text for node in order for text in self._errors.get(node, ())]
        if self._calls:
            details["calls"] = [call.as_json() for call in self._calls]
        evidence = evidence._replace(
            metrics=self._sums(), block_metrics=measured or NOTHING, details=details
        )
        return evidence if primary_output is None else with_primary(evidence, primary_output)

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
