"""Run a workflow: from its entry, block after block, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from evalcore.errors import EvalError
from evalcore.model.evidence import NOTHING, Metrics
from evalcore.model.exchange import SkippedError
from evalcore.workflow.definition import Block, WorkflowDefinition
from evalcore.workflow.events import EventType, Snapshot
from evalcore.workflow.failure import BlockError, WorkflowError
from evalcore.workflow.interface import interface_inputs
from evalcore.workflow.log import EventLog
from evalcore.workflow.routing import exit_handle, next_block
from evalcore.workflow.services import EngineServices
from evalcore.workflow.step import run_block
from evalcore.workflow.usage import Meter, ProviderCall
from evalcore.workflow.values import MISSING, WorkflowState, text_of

_LEAST_STEPS: Final = 100
_STEPS_PER_BLOCK: Final = 5
_TRAIL: Final = 6


@dataclass(frozen=True, slots=True)
class Fixtures:
    """Outputs of blocks that do not run, and what they took."""

    outputs: Mapping[str, str] = NOTHING
    metrics: Mapping[str, Metrics] = NOTHING


@dataclass(frozen=True, slots=True)
class Finished:
    """What an execution left. `value` is the primary output, `outputs` the blocks' as JSON values.

    `errors` are those it survived, `invocations` how often each block ran, `durations_ms` how long
    each one took that really ran, all its invocations together.
    """

    value: Any
    outputs: Mapping[str, Any]
    calls: tuple[ProviderCall, ...]
    errors: tuple[str, ...]
    invocations: Mapping[str, int]
    durations_ms: Mapping[str, float]


@dataclass(slots=True)
class WorkflowExecution:
    """One workflow being run; a sub-workflow's has the log and the counters of the outer one.

    `files` are those that tools wrote, by path.
    """

    definition: WorkflowDefinition
    services: EngineServices
    state: WorkflowState
    log: EventLog
    fixtures: Fixtures = field(default_factory=Fixtures)
    prefix: str = ""
    call_block: str | None = None
    depth: int = 0
    calls: list[ProviderCall] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    invocations: dict[str, int] = field(default_factory=dict)
    durations_ms: dict[str, float] = field(default_factory=dict)
    meters: tuple[Meter, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    async def run(self) -> Any:
        """Return the primary output; raise `WorkflowError` if a block fails for good."""
        caps = self.definition.limits
        if caps is None:
            return await self._run()
        self.meters = (*self.meters, Meter(caps))
        try:
            async with asyncio.timeout(None if caps.warns else caps.max_duration_seconds) as scope:
                return await self._run()
        except TimeoutError:
            if not scope.expired():
                raise
            message = f"max_duration_seconds: no output within {caps.max_duration_seconds:g} s"
            raise WorkflowError(message, "limit") from None

    async def _run(self) -> Any:
        bound = max(_LEAST_STEPS, _STEPS_PER_BLOCK * len(self.definition.blocks))
        trail: list[str] = []
        current: str | None = self.definition.entry
        last: Any = None
        while current is not None:
            if len(trail) >= bound:
                way = " → ".join(trail[-_TRAIL:])
                message = f"the workflow did not end within {bound} blocks; it goes round: … {way}"
                raise WorkflowError(f"{message}. Make a loop that ends of it ('type: loop')")
            trail.append(current)
            current, last = await self._advance(self._block(current), last)
        return self._primary(last)

    async def _advance(self, block: Block, last: Any) -> tuple[str | None, Any]:
        """Run a block; return the next one's id and the output that is the last one now."""
        path = f"{self.prefix}{block.id}"
        try:
            value = await run_block(self, block)
            handle = exit_handle(block, value, self.state)
            route = next_block(self.definition, block, value, handle, self.state)
        except BlockError as error:
            target = error.route or block.error_route
            await self._failed(block, error)
            if target is None:
                raise WorkflowError(f"block '{path}': {error}", _kind(error)) from error
            await self.log.add(EventType.ROUTE_TAKEN, path, to=target, by="error")
            return target, last
        to, by = route.to, route.by
        if handle == "error" and block.error_route is not None:
            to, by = block.error_route, "error"
        decision = handle or route.decision
        await self.log.add(EventType.ROUTE_TAKEN, path, to=to, by=by, decision=decision)
        return to, value

    async def _failed(self, block: Block, error: BlockError) -> None:
        path = f"{self.prefix}{block.id}"
        failure = {"type": error.kind, "message": error.message}
        self.state.shared[f"__error__{block.id}"] = failure
        self.errors.append(f"block '{path}': {error}")
        await self.log.add(EventType.BLOCK_FAILED, path, kind=error.kind, message=error.message)

    def _block(self, name: str) -> Block:
        block = self.definition.blocks.get(name)
        if block is None:
            raise WorkflowError(f"there is no block '{name}'")
        return block

    def _primary(self, last: Any) -> Any:
        primary = self.definition.primary_output
        if primary is None:
            return last
        output = self.state.find(primary)
        if output is MISSING:
            message = f"primary_output: there is no '{primary}'; {self.state.known_names()}"
            raise WorkflowError(message)
        return output

    async def run_inner(self, name: str) -> tuple[Any, str | None]:
        """Run a block that a loop names; return its output and exit handle."""
        block = self._block(name)
        try:
            value = await run_block(self, block)
            return value, exit_handle(block, value, self.state)
        except BlockError as error:
            await self._failed(block, error)
            message = f"block '{block.id}': {error}"
            route = error.route or block.error_route
            raise BlockError(error.kind, message, route=route) from error

    def child(
        self,
        block: Block,
        definition: WorkflowDefinition,
        inputs: Mapping[str, Any],
        max_depth: int,
    ) -> WorkflowExecution:
        """Return the execution of another workflow as a block of this one."""
        if self.depth + 1 > max_depth:
            message = f"workflows stand in one another deeper than {max_depth} times"
            raise BlockError("depth", message)
        return WorkflowExecution(
            definition=definition,
            services=self.services,
            state=initial_state(definition, inputs),
            log=self.log,
            prefix=f"{self.prefix}{block.id}/",
            call_block=self.call_block or block.id,
            depth=self.depth + 1,
            calls=self.calls,
            errors=self.errors,
            files=self.files,
        )

    async def run_as_block(self) -> tuple[Any, WorkflowState]:
        """Return the primary output and the state; raise `BlockError` where there is none."""
        try:
            return await self.run(), self.state
        except WorkflowError as error:
            raise BlockError(error.kind, str(error), retryable=True) from error


def initial_state(definition: WorkflowDefinition, inputs: Mapping[str, Any]) -> WorkflowState:
    """Return what is known before the first block: the inputs, with the declared defaults."""
    complete, shared = dict(inputs), {}
    for item in interface_inputs(definition.inputs, definition.interface):
        if item.default is not None:
            complete.setdefault(item.name, item.default)
        if item.shared is not None and item.name in complete:
            shared[item.shared] = complete[item.name]
    state = WorkflowState(complete)
    state.shared.update(shared)
    return state


def _kind(error: BlockError) -> str:
    return "timeout" if error.kind == "timeout" else "workflow"


async def run_workflow(
    definition: WorkflowDefinition,
    inputs: Mapping[str, Any],
    services: EngineServices,
    fixtures: Fixtures | None = None,
) -> Finished:
    """Run a workflow to its end.

    Raise `WorkflowError` where it gives no output, `SkippedError` where a limit of the run
    prevented a call. In every case its events and a final snapshot are in the store afterwards.
    """
    log = EventLog(services.store)
    execution = WorkflowExecution(
        definition, services, initial_state(definition, inputs), log, fixtures or Fixtures()
    )
    await log.add(EventType.WORKFLOW_STARTED, workflow=definition.name, entry=definition.entry)
    try:
        value = await execution.run()
    except (EvalError, asyncio.CancelledError) as error:
        if isinstance(error, SkippedError):
            reason = f"skipped: {error}"
        else:
            reason = str(error) or "cancelled"
        await log.add(EventType.WORKFLOW_FAILED, message=reason)
        await log.save(_snapshot(execution, "failed", reason))
        raise
    await log.add(EventType.WORKFLOW_COMPLETED, output=text_of(value))
    await log.save(_snapshot(execution, "completed", None))
    return Finished(
        value=value,
        outputs=dict(execution.state.outputs),
        calls=tuple(execution.calls),
        errors=tuple(execution.errors),
        invocations=dict(execution.invocations),
        durations_ms=dict(execution.durations_ms),
    )


def _snapshot(execution: WorkflowExecution, state: str, error: str | None) -> Snapshot:
    values = dict(execution.state.outputs)
    texts = {block: text_of(value) for block, value in values.items()}
    context = {
        "inputs": execution.state.inputs,
        "outputs": values,
        "shared": execution.state.shared,
    }
    return Snapshot(execution.log.sequence, state, texts, context, error)
