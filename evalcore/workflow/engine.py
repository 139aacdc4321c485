"""Run a workflow: from its entry, block after block, to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from evalcore.errors import EvalError
from evalcore.model.evidence import NOTHING, UNMEASURED, Metrics
from evalcore.model.exchange import SkippedError
from evalcore.workflow.context import Context, EngineServices, Meter
from evalcore.workflow.definition import Block, Retry, WorkflowDefinition, interface_inputs
from evalcore.workflow.events import (
    BlockError,
    EventType,
    NoExecutorError,
    ProviderCall,
    Snapshot,
    WorkflowError,
    sum_calls,
)
from evalcore.workflow.handles import WHOLE_INPUT, input_handles, output_handle
from evalcore.workflow.routing import exit_handle, next_block
from evalcore.workflow.run_store import EventLog
from evalcore.workflow.values import (
    MISSING,
    WorkflowState,
    check_outputs,
    parsed,
    text_of,
)

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


async def run_block(execution: WorkflowExecution, block: Block) -> Any:
    """Return the block's output, which is known to the execution then; raise `BlockError`.

    A block with a fixture does not run. Steps of the outermost workflow are recorded if that is
    asked for.
    """
    if execution.services.steps is None or execution.prefix:
        return await _run_once(execution, block)
    return await record_step(execution, block, resolve_inputs, _run_once)


async def _run_once(execution: WorkflowExecution, block: Block) -> Any:
    path = f"{execution.prefix}{block.id}"
    if not execution.prefix:
        execution.invocations[block.id] = execution.invocations.get(block.id, 0) + 1
    await execution.log.add(EventType.BLOCK_STARTED, path, type=block.type)
    started = time.perf_counter()
    fixture = execution.fixtures.outputs.get(block.id)
    if fixture is not None:
        value = fixture if block.is_text else parsed(fixture)
    else:
        value = await _run(execution, block, path)
    execution.state.outputs[block.id] = value
    duration_ms = round((time.perf_counter() - started) * 1000, 1)
    if fixture is None and not execution.prefix:
        before_ms = execution.durations_ms.get(block.id, 0.0)
        execution.durations_ms[block.id] = before_ms + duration_ms
    await execution.log.add(
        EventType.BLOCK_COMPLETED,
        path,
        output=text_of(value),
        duration_ms=duration_ms,
        given=True if fixture is not None else None,
    )
    return value


async def _run(execution: WorkflowExecution, block: Block, path: str) -> Any:
    """Return the output of a block that really runs, with its limits and its checks."""
    caps = block.limits
    meters = execution.meters if caps is None else (*execution.meters, Meter(caps))
    before = len(execution.calls)
    started = time.perf_counter()
    limit_s = None if caps is None or caps.warns else caps.max_duration_seconds
    try:
        async with asyncio.timeout(limit_s) as scope:
            value = await _attempts(execution, block, path, meters)
    except TimeoutError:
        if not scope.expired():
            raise
        message = f"max_duration_seconds: no output within {limit_s:g} s"
        raise BlockError("limit", message) from None
    took_s = time.perf_counter() - started
    longest_s = None if caps is None else caps.max_duration_seconds
    if longest_s is not None and took_s > longest_s:
        message = f"took {took_s:.1f} s, the limit is {longest_s:g}"
        await execution.log.add(EventType.LIMIT_EXCEEDED, path, message=message)
    await _check(execution, block, path, value, execution.calls[before:])
    return value


async def _attempts(
    execution: WorkflowExecution, block: Block, path: str, meters: tuple[Meter, ...]
) -> Any:
    attempt = 1
    while True:
        try:
            return await _attempt(execution, block, path, meters)
        except BlockError as error:
            retry = block.retry_config
            if retry is None or attempt >= retry.max_attempts or not error.retryable:
                raise
            if _is_final(error, retry):
                raise
            wait_s = retry.wait_s(attempt)
            message = f"block '{path}', attempt {attempt}: {error}"
            execution.errors.append(message)
            await execution.log.add(
                EventType.BLOCK_RETRIED, path, attempt=attempt, message=str(error), wait_s=wait_s
            )
            attempt += 1
            await asyncio.sleep(wait_s)


async def _attempt(
    execution: WorkflowExecution, block: Block, path: str, meters: tuple[Meter, ...]
) -> Any:
    context = Context(
        block=block,
        definition=execution.definition,
        inputs=resolve_inputs(execution, block),
        fixtures=execution.fixtures.outputs,
        state=execution.state,
        services=execution.services,
        log=execution.log,
        path=path,
        calls=execution.calls,
        call_block=execution.call_block or block.id,
        meters=meters,
        run_inner=execution.run_inner,
        run_child=partial(_child, execution, block, meters),
        files=execution.files,
    )
    execution.state.chosen_exits.pop(block.id, None)
    try:
        async with asyncio.timeout(block.timeout_seconds) as scope:
            value = await block.run(context)
    except TimeoutError:
        if not scope.expired():
            raise
        message = f"no output within {block.timeout_seconds:g} s (timeout_seconds)"
        raise BlockError("timeout", message, retryable=True) from None
    except (BlockError, SkippedError, NoExecutorError):
        raise
    except EvalError as error:
        raise BlockError(type(error).__name__, str(error)) from error
    if block.outputs and block.declares_outputs:
        check_outputs(block.outputs, value)
    return value


async def _child(
    execution: WorkflowExecution,
    block: Block,
    meters: tuple[Meter, ...],
    definition: WorkflowDefinition,
    inputs: Mapping[str, Any],
    max_depth: int,
) -> tuple[Any, WorkflowState]:
    child = execution.child(block, definition, inputs, max_depth)
    child.meters = meters
    return await child.run_as_block()


def resolve_inputs(execution: WorkflowExecution, block: Block) -> dict[str, Any] | None:
    """Return the values of the declared inputs; raise `BlockError` for one without a value."""
    if block.sources is None:
        return None
    values = {}
    for name, source in block.sources.items():
        value = execution.state.find(source.path)
        if value is MISSING:
            if not source.has_default:
                names = execution.state.known_names()
                raise BlockError("input", f"input '{name}': there is no '{source.path}'; {names}")
            value = source.default
        values[name] = value
    return values


_PLAIN: Final[Callable[[str], str]] = lambda name: (  # noqa: E731
    name.lower().replace("_", "").replace("-", "").removesuffix("error").removesuffix("limit")
)


def _is_final(error: BlockError, retry: Retry) -> bool:
    """Whether `non_retryable_errors` names the error: `ValueError`, `timeout`, `RateLimitError`."""
    return _PLAIN(error.kind) in {_PLAIN(name) for name in retry.non_retryable_errors or ()}


async def _check(
    execution: WorkflowExecution, block: Block, path: str, value: Any, calls: list[ProviderCall]
) -> None:
    """Record what the block's own assertions say; they decide nothing."""
    checks = execution.definition.checks.get(block.id)
    if not checks or execution.services.check is None:
        return
    metrics = sum_calls(calls) if calls else UNMEASURED
    for result in await execution.services.check(checks, text_of(value), metrics):
        await execution.log.add(
            EventType.ASSERTION_RESULT,
            path,
            name=result.name,
            type=result.type,
            outcome=str(result.outcome),
            score=result.score,
            message=result.message or None,
        )


Inputs = Callable[["WorkflowExecution", Block], "dict[str, Any] | None"]


async def record_step(
    execution: WorkflowExecution,
    block: Block,
    inputs_of: Inputs,
    run: Callable[[WorkflowExecution, Block], Awaitable[Any]],
) -> Any:
    """Return what `run` returns, and append a step to the execution's, also if it fails.

    A step is a JSON object: `block_id`, `block_type`, `round` (from 1; None outside of loops),
    `started_us` and `ended_us` since the epoch, `inputs` and `outputs` by handle, `error`.
    """
    steps = execution.services.steps
    assert steps is not None  # noqa: S101 - else nothing is recorded
    step: dict[str, Any] = {
        "block_id": block.id,
        "block_type": block.type,
        "round": _round(execution, block),
        "started_us": time.time_ns() // 1000,
        "inputs": _inputs(execution, block, inputs_of),
        "outputs": None,
        "error": None,
    }
    steps.append(step)
    try:
        value = await run(execution, block)
    except BlockError as error:
        step["error"] = {"code": error.kind, "message": str(error)}
        raise
    finally:
        step["ended_us"] = time.time_ns() // 1000
    step["outputs"] = block_outputs(block, value, execution.state.outputs)
    return value


def block_outputs(block: Block, value: Any, outputs: dict[str, Any]) -> dict[str, Any]:
    """Return the value of each output handle: of the block, and of the exits of a dispatch."""
    values = {output_handle(None): value}
    for number, member in enumerate(block.exits or () if block.type == "dispatch" else ()):
        text = outputs.get(f"{block.id}.{member.id}")
        if text is not None:
            values[output_handle(number)] = text
    return values


def declared_inputs(block: Block) -> dict[str, Any] | None:
    """Return the declared inputs with their types, as `input_handles` takes them."""
    if block.sources is None:
        return None
    return {name: {"type": source.type} for name, source in block.sources.items()}


def _inputs(execution: WorkflowExecution, block: Block, inputs_of: Inputs) -> dict[str, Any]:
    try:
        values = inputs_of(execution, block)
    except BlockError:  # the block fails for the same reason
        return {}
    if values is None:
        return {WHOLE_INPUT: execution.state.everything()}
    handles = input_handles(declared_inputs(block))
    return {handle.handle_id: values[handle.name] for handle in handles if handle.name in values}


def _round(execution: WorkflowExecution, block: Block) -> int | None:
    for loop in execution.definition.blocks.values():
        if block.id in (getattr(loop, "inner_block_refs", None) or ()):
            number = execution.state.shared.get(f"{loop.id}_round")
            return int(number) if number is not None else None
    return None
