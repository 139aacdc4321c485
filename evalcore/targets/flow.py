"""The target `flow`: a workflow factory, or a function that answers (docs/reference/suites.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from evalcore.errors import TargetError
from evalcore.isolation.mode import Isolation
from evalcore.jsonvalues import own_copy
from evalcore.model.evidence import Evidence
from evalcore.model.suite import Case
from evalcore.model.target import DEFAULT_VARIANT, Target
from evalcore.targets.answers import (
    AnswerError,
    block_evidence,
    returned_evidence,
    with_primary,
)
from evalcore.targets.function_context import (
    FLOW_MORE,
    FLOW_NAMES,
    FLOW_ORDER,
    FlowContext,
    called,
)
from evalcore.targets.nodes import (
    PRIMARY_KEYS,
    WRAPPER_KEYS,
    NodeCalls,
    NodeExecution,
    NodeFlow,
    NodeQuestion,
    NodeRegistry,
    TargetAnswer,
    is_node_flow,
    names_one,
    read_node_flow,
)
from evalcore.targets.python import FunctionTarget
from evalcore.targets.registry import KINDS, build_within
from evalcore.targets.work import TargetOptions, Work, input_messages, prompt_of
from evalcore.trust.imports import arguments_for
from evalcore.workflow.context import EngineServices, SoulAnswer
from evalcore.workflow.events import Event, NoExecutorError, ProviderCall, Snapshot
from evalcore.workflow.run_store import MemoryRunStore

if TYPE_CHECKING:
    from evalcore.isolation.worker import Engine


_ANSWER: Final = "answer"
_NODE: Final = "node"
_EVENTS: Final = "events"
_KIND: Final = "flow"
_DEEPEST: Final = 5


class FlowOptions(TargetOptions):
    """Options of a target of kind `flow`."""

    callable: str | None = Field(
        default=None,
        description="`module:function`: a workflow factory, called with `case_input`, `variant`, "
        "`mode`, `context` (as many of them as it takes). It returns a workflow definition, nodes "
        "{flow, register}, a function, a target {provider, …}, {flow, primary_output}, or the "
        "answer.",
    )
    target: dict[str, Any] | None = Field(
        default=None, description="{name, kind, options} of a target that answers instead."
    )
    primary_output: str | None = Field(
        default=None, description="Which block's output is checked; default: the last one's."
    )
    provider: str | None = Field(default=None, description="The variant's provider.")
    model: str | None = Field(default=None, description="The variant's model.")
    config: dict[str, Any] = Field(default_factory=dict, description="The variant's config.")
    providers: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="What the function may name as provider beside `openai` and `anthropic`, and "
        "what answers for nodes whose type is not registered.",
    )
    behaviour: str | None = Field(
        default=None, description="A digest of the function's code; part of the identity only."
    )
    isolation: Isolation | None = Field(
        default=None,
        description="`process`: the function runs in a worker process; `inline`: in the engine's.",
    )
    call: Literal["factory", "executor"] = Field(
        default="factory",
        description="`executor`: called with the case, it returns a mapping of block outputs.",
    )


class FlowTarget(FunctionTarget):
    """Calls the factory and runs what it returns."""

    kind = _KIND

    async def _execute(self, function: Any, context: FlowContext, work: Work) -> Evidence:
        try:
            if self._options.call == "executor":
                returned = await called(_KIND, function, ExecutorCase.of(work.case))
                evidence = _blocks_of(returned, work.case.block_fixtures)
            else:
                evidence = await self._executed(function, context, work)
            primary = self._options.primary_output
            return evidence if primary is None else with_primary(evidence, primary)
        except AnswerError as error:
            raise TargetError(_KIND, str(error)) from error

    async def _answer_worker(self, question: str, value: Any, work: Work) -> Any:
        if question == _ANSWER:
            target = Target(str(value["name"]), str(value["kind"]), dict(value["options"]))
            return await self._answered(target, work)
        if question == _NODE:
            return await self._answered_node(NodeQuestion(*value), work)
        if question == _EVENTS:
            if work.run_store is not None:
                for event in value["events"]:
                    await work.run_store.append_event(Event(*event))
                await work.run_store.save_snapshot(Snapshot(*value["snapshot"]))
            return None
        return await super()._answer_worker(question, value, work)

    def _function(self, work: Work) -> Any:
        if self._options.target is not None:
            return self._options.target
        if self._options.callable is None:
            raise TargetError(_KIND, "a flow needs 'callable': module:function")
        return super()._function(work)

    def _model_names(self) -> tuple[str | None, str | None]:
        return self._options.provider, self._options.model

    async def _executed(
        self, flow: Any, context: FlowContext, work: Work, depth: int = 0
    ) -> Evidence:
        """Return the evidence of a flow of any form, which may return another flow."""
        if depth > _DEEPEST:
            raise AnswerError(f"a flow that returns a flow, {_DEEPEST} times over")
        if isinstance(flow, Mapping) and "flow" in flow:
            return await self._wrapped(flow, context, work, depth)
        target = _target_in(flow)
        if target is not None:
            return await self._answered(target, work)
        if callable(flow):
            arguments, keywords = arguments_for(
                flow,
                context.arguments(),
                FLOW_ORDER,
                FLOW_NAMES,
                FLOW_MORE,
                keeps_defaults=True,
            )
            returned = await called(_KIND, flow, *arguments, **keywords)
            return await self._executed(returned, context, work, depth + 1)
        return returned_evidence(flow)

    async def _wrapped(
        self, wrapper: Mapping[str, Any], context: FlowContext, work: Work, depth: int
    ) -> Evidence:
        """Return the evidence of `{flow, primary_output}`, or of nodes: with `register`."""
        unknown = [str(key) for key in wrapper if key not in WRAPPER_KEYS]
        if unknown:
            keys = "flow, register, primary_output (primaryOutputNodeId)"
            raise AnswerError(f"unknown key '{unknown[0]}' beside 'flow'; known: {keys}")
        flow = wrapper["flow"]
        primary = next((wrapper[key] for key in PRIMARY_KEYS if wrapper.get(key) is not None), None)
        if is_node_flow(flow):
            named = None if primary is None else str(primary)
            return await self._nodes(read_node_flow(flow), named, wrapper, context, work)
        if wrapper.get("register") is not None:
            raise AnswerError("'register' belongs to a flow of nodes: {name, nodes, edges}")
        if flow is None or isinstance(flow, str | int | float | list | tuple):
            what = "a function, a workflow {blocks}, a target {provider}, or {name, nodes, edges}"
            raise AnswerError(f"'flow' is something to execute: {what}; not {flow!r:.80}")
        evidence = await self._executed(flow, context, work, depth + 1)
        return evidence if primary is None else with_primary(evidence, str(primary))

    async def _nodes(
        self,
        flow: NodeFlow,
        primary: str | None,
        wrapper: Mapping[str, Any],
        context: FlowContext,
        work: Work,
    ) -> Evidence:
        """Return what the nodes of a flow leave."""
        ids = [node.id for node in flow.nodes]
        if primary is not None and not names_one(primary, ids):
            nodes = ", ".join(ids)
            raise AnswerError(f"the primary output '{primary}' is no node; nodes: {nodes}")
        registry = NodeRegistry()
        if wrapper.get("register") is not None:
            register, values = wrapper["register"], {"registry": registry, "mode": work.mode}
            if not callable(register):
                raise AnswerError("'register' is a function register(registry, mode)")
            names = {name: name for name in values}
            arguments, keywords = arguments_for(register, values, [*values], names)
            await called(_KIND, register, *arguments, **keywords)

        async def ask(question: NodeQuestion) -> TargetAnswer | None:
            return await self._answered_node(question, work)

        store = work.run_store or MemoryRunStore()
        if self._engine is not None:
            store = _EngineRunStore(self._engine)
        services = EngineServices(_no_souls, work.complete, work.folder, store=store)
        return await NodeExecution(flow, registry, context, ask).run(services, primary)

    async def _answered_node(self, question: NodeQuestion, work: Work) -> TargetAnswer | None:
        """Return the answer of the target that a node's type names; None if there is none.

        An input `{prompt}` or `{messages}` is what it holds. The node's configuration is laid over
        the target's options.
        """
        if self._engine is not None:
            answer: TargetAnswer | None = await self._engine.ask(_NODE, list(question))
            return answer
        entry = self._options.providers.get(question.type)
        if entry is None:
            return None
        value = question.input
        if isinstance(value, Mapping) and len(value) == 1:
            ((key, inner),) = value.items()
            if key in ("prompt", "messages") and isinstance(inner, str | list):
                value = inner
        target = Target(question.type, entry["kind"], dict(entry["options"]))
        variant = replace(DEFAULT_VARIANT, config=question.config)
        what = f"target '{target.name}'"
        runnable = build_within(self._context, target, variant, what=what, error_kind="target")
        calls: list[ProviderCall] = []
        messages = input_messages(value, any_value=True)
        node_work = replace(
            work,
            case=work.case._replace(input=value),
            messages=messages,
            prompt=prompt_of(messages),
            complete=NodeCalls(work.complete, question.node, calls),
        )
        return TargetAnswer(await runnable.answer(node_work), tuple(calls))

    async def _answered(self, target: Target, work: Work) -> Evidence:
        """Return the answer of a target that the flow is or returned."""
        if self._engine is not None:
            stored = {"name": target.name, "kind": target.kind, "options": dict(target.options)}
            evidence: Evidence = await self._engine.ask(_ANSWER, stored)
            return evidence
        if target.kind == "workflow" and self._options.providers:
            options = {"providers": self._options.providers, **target.options}
            target = Target(target.name, target.kind, options)
        what = f"target '{target.name}'"
        runnable = build_within(self._context, target, what=what, error_kind=_KIND)
        return await runnable.answer(work)


async def _no_souls(*_: object) -> SoulAnswer:
    raise NoExecutorError("flow", "nodes have no souls")


def is_definition(value: Any) -> bool:
    """Whether a value is a workflow definition rather than an answer."""
    return isinstance(value, Mapping) and isinstance(value.get("blocks"), Mapping)


def _target_in(flow: Any) -> Target | None:
    """Return the target that a flow is: a definition, `{provider, …}`, or a stored target."""
    if not isinstance(flow, Mapping):
        return None
    if is_definition(flow):
        return Target("workflow", "workflow", dict(flow))
    if set(flow) == {"name", "kind", "options"}:
        return Target(flow["name"], flow["kind"], flow["options"])
    kind = flow.get("provider")
    if not isinstance(kind, str) or kind not in KINDS:
        return None
    options = {key: value for key, value in flow.items() if key not in {"provider", "name"}}
    return Target(str(flow.get("name", kind)), kind, options)


@dataclass(frozen=True, slots=True)
class ExecutorCase:
    """A case of a workflow file as an executor sees it.

    `fixtures` are the outputs of blocks that do not run: the executor's for those are not used.
    `expected` are the blocks that assertions look at.
    """

    id: str
    inputs: Mapping[str, Any]
    fixtures: Mapping[str, str]
    expected: tuple[str, ...]

    @classmethod
    def of(cls, case: Case) -> ExecutorCase:
        """Return the view of a case."""
        named = (assertion.block for assertion in case.assertions)
        blocks = dict.fromkeys(block for block in named if block is not None)
        fixtures = {} if case.block_fixtures is None else dict(case.block_fixtures.outputs)
        return cls(case.id, own_copy(case.input) or {}, fixtures, tuple(blocks))


def _blocks_of(returned: Any, fixtures: Evidence | None) -> Evidence:
    """Return the evidence of an executor's mapping of block outputs, the case's fixtures in it."""
    if isinstance(returned, Evidence):
        evidence = returned
    elif isinstance(returned, Mapping):
        blocks = {str(block): value for block, value in returned.items() if value is not None}
        evidence = block_evidence(blocks)
    else:
        type_name = type(returned).__name__
        raise AnswerError(f"an executor returns a mapping of block outputs, not {type_name}")
    if fixtures is None:
        return evidence
    outputs = {**evidence.outputs, **fixtures.outputs}
    output = evidence.output if evidence.outputs else fixtures.output
    measured = {**evidence.block_metrics, **fixtures.block_metrics}
    return evidence._replace(output=output, outputs=outputs, block_metrics=measured)


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
