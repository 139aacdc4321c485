"""Run a workflow: from its entry, block after block, to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from evalcore.errors import EvalError
from evalcore.model.evidence import NOTHING, Metrics
from evalcore.model.exchange import SkippedError
from evalcore.workflow.context import Context, EngineServices, Meter
from evalcore.workflow.definition import Block, WorkflowDefinition
from evalcore.workflow.events import (
    BlockError,
    EventType,
    NoExecutorError,
    ProviderCall,
    Snapshot,
    WorkflowError,
    sum_calls,
)
from evalcore.workflow.handles import WHOLE_INPUT, block_handles, block_outputs
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
    """One workflow being run; a sub-workflow's has the log and the counters of the outer one."""

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

    async def run(self) -> Any:
        """Return the primary output; raise `WorkflowError` if a block fails for good."""
        caps = self.definition.limits
        if caps is None:
            return await self._run()
        self.meters = (*self.meters, Meter(caps))
        limit_s = None if caps.warns else caps.max_duration_seconds
        message = f"max_duration_seconds: no output within {limit_s or 0:g} s"
        async with _within(limit_s, WorkflowError("limit", message)):
            return await self._run()

    async def _run(self) -> Any:
        bound = max(_LEAST_STEPS, _STEPS_PER_BLOCK * len(self.definition.blocks))
        trail: list[str] = []
        current: str | None = self.definition.entry
        last: Any = None
        while current is not None:
            if len(trail) >= bound:
                way = " → ".join(trail[-_TRAIL:])
                message = f"the workflow did not end within {bound} blocks; it goes round: … {way}"
                raise WorkflowError(
                    "workflow", f"{message}. Make a loop that ends of it ('type: loop')"
                )
            trail.append(current)
            current, last = await self._advance(self._block(current), last)
        primary = self.definition.primary_output
        if primary is None:
            return last
        output = self.state.find(primary)
        if output is MISSING:
            message = f"primary_output: there is no '{primary}'; {self.state.known_names()}"
            raise WorkflowError("workflow", message)
        return output

    async def _advance(self, block: Block, last: Any) -> tuple[str | None, Any]:
        """Run a block; return the next one's id and the output that is the last one now."""
        path = f"{self.prefix}{block.id}"
        try:
            value = await self.run_block(block)
            handle = exit_handle(block, value, self.state)
            route = next_block(self.definition, block, value, handle, self.state)
        except BlockError as error:
            target = error.route or block.error_route
            await self._failed(block, error)
            if target is None:
                kind = "timeout" if error.kind == "timeout" else "workflow"
                raise WorkflowError(kind, f"block '{path}': {error}") from error
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
            raise WorkflowError("workflow", f"there is no block '{name}'")
        return block

    async def _run_inner(self, name: str) -> Any:
        """Run a block that a loop names; return its output."""
        block = self._block(name)
        try:
            return await self.run_block(block)
        except BlockError as error:
            await self._failed(block, error)
            message = f"block '{block.id}': {error}"
            route = error.route or block.error_route
            raise BlockError(error.kind, message, route=route) from error

    async def _run_child(
        self,
        block: Block,
        meters: tuple[Meter, ...],
        definition: WorkflowDefinition,
        inputs: Mapping[str, Any],
        max_depth: int,
    ) -> tuple[Any, WorkflowState]:
        """Run another workflow as a block of this one; return its primary output and its state."""
        if self.depth + 1 > max_depth:
            message = f"workflows stand in one another deeper than {max_depth} times"
            raise BlockError("depth", message)
        child = WorkflowExecution(
            definition=definition,
            services=self.services,
            state=initial_state(definition, inputs),
            log=self.log,
            prefix=f"{self.prefix}{block.id}/",
            call_block=self.call_block or block.id,
            depth=self.depth + 1,
            calls=self.calls,
            errors=self.errors,
            meters=meters,
        )
        try:
            return await child.run(), child.state
        except WorkflowError as error:
            raise BlockError(error.kind, str(error), retryable=True) from error

    async def run_block(self, block: Block) -> Any:
        """Return the block's output, which is known to the execution then; raise `BlockError`.

        A block with a fixture does not run. If steps are asked for, one is appended for each run of
        a block of the outermost workflow, also if it fails: a JSON object with `block_id`,
        `block_type`, `round` (from 1; None outside of loops), `started_us` and `ended_us` since the
        epoch, `inputs` and `outputs` by handle, `error`.
        """
        steps = self.services.steps
        if steps is None or self.prefix:
            return await self._run_once(block)
        step: dict[str, Any] = {
            "block_id": block.id,
            "block_type": block.type,
            "round": self._round(block),
            "started_us": time.time_ns() // 1000,
            "inputs": self._inputs_by_handle(block),
            "outputs": None,
            "error": None,
        }
        steps.append(step)
        try:
            value = await self._run_once(block)
        except BlockError as error:
            step["error"] = {"code": error.kind, "message": str(error)}
            raise
        finally:
            step["ended_us"] = time.time_ns() // 1000
        step["outputs"] = block_outputs(block, value, self.state.outputs)
        return value

    def _inputs_by_handle(self, block: Block) -> dict[str, Any]:
        try:
            values = self._resolved_inputs(block)
        except BlockError:  # the block fails for the same reason
            return {}
        if values is None:
            return {WHOLE_INPUT: self.state.everything()}
        handles = block_handles(block)
        return {each.handle_id: values[each.name] for each in handles if each.name in values}

    def _round(self, block: Block) -> int | None:
        for loop in self.definition.blocks.values():
            if block.id in (getattr(loop, "inner_block_refs", None) or ()):
                number = self.state.shared.get(f"{loop.id}_round")
                return int(number) if number is not None else None
        return None

    async def _run_once(self, block: Block) -> Any:
        path = f"{self.prefix}{block.id}"
        if not self.prefix:
            self.invocations[block.id] = self.invocations.get(block.id, 0) + 1
        await self.log.add(EventType.BLOCK_STARTED, path, type=block.type)
        started = time.perf_counter()
        fixture = self.fixtures.outputs.get(block.id)
        if fixture is not None:
            value = fixture if block.is_text else parsed(fixture)
        else:
            value = await self._run_within_limits(block, path)
        self.state.outputs[block.id] = value
        duration_ms = round((time.perf_counter() - started) * 1000, 1)
        if fixture is None and not self.prefix:
            before_ms = self.durations_ms.get(block.id, 0.0)
            self.durations_ms[block.id] = before_ms + duration_ms
        await self.log.add(
            EventType.BLOCK_COMPLETED,
            path,
            output=text_of(value),
            duration_ms=duration_ms,
            given=True if fixture is not None else None,
        )
        return value

    async def _run_within_limits(self, block: Block, path: str) -> Any:
        """Return the output of a block that really runs, with its limits and its checks."""
        caps = block.limits
        meters = self.meters if caps is None else (*self.meters, Meter(caps))
        before, started = len(self.calls), time.perf_counter()
        longest_s = None if caps is None else caps.max_duration_seconds
        limit_s = None if caps is None or caps.warns else longest_s
        message = f"max_duration_seconds: no output within {limit_s or 0:g} s"
        async with _within(limit_s, BlockError("limit", message)):
            value = await self._attempts(block, path, meters)
        took_s = time.perf_counter() - started
        if longest_s is not None and took_s > longest_s:
            message = f"took {took_s:.1f} s, the limit is {longest_s:g}"
            await self.log.add(EventType.LIMIT_EXCEEDED, path, message=message)
        await self._check(block, path, value, self.calls[before:])
        return value

    async def _attempts(self, block: Block, path: str, meters: tuple[Meter, ...]) -> Any:
        attempt = 1
        while True:
            try:
                return await self._attempt(block, path, meters)
            except BlockError as error:
                retry = block.retry_config
                if retry is None or attempt >= retry.max_attempts or not error.retryable:
                    raise
                if _plain(error.kind) in map(_plain, retry.non_retryable_errors or ()):
                    raise
                wait_s, message = retry.wait_s(attempt), str(error)
                self.errors.append(f"block '{path}', attempt {attempt}: {message}")
                retried = {"attempt": attempt, "message": message, "wait_s": wait_s}
                await self.log.add(EventType.BLOCK_RETRIED, path, **retried)
                attempt += 1
                await asyncio.sleep(wait_s)

    async def _attempt(self, block: Block, path: str, meters: tuple[Meter, ...]) -> Any:
        context = Context(
            block=block,
            definition=self.definition,
            inputs=self._resolved_inputs(block),
            fixtures=self.fixtures.outputs,
            state=self.state,
            services=self.services,
            log=self.log,
            path=path,
            calls=self.calls,
            call_block=self.call_block or block.id,
            meters=meters,
            run_inner=self._run_inner,
            run_child=partial(self._run_child, block, meters),
        )
        message = f"no output within {block.timeout_seconds:g} s (timeout_seconds)"
        try:
            async with _within(
                block.timeout_seconds, BlockError("timeout", message, retryable=True)
            ):
                value = await block.run(context)
        except (BlockError, SkippedError, NoExecutorError):
            raise
        except EvalError as error:
            raise BlockError(type(error).__name__, str(error)) from error
        if block.outputs and block.declares_outputs:
            check_outputs(block.outputs, value)
        return value

    def _resolved_inputs(self, block: Block) -> dict[str, Any] | None:
        """Return the values of the declared inputs; raise `BlockError` for one without a value."""
        if block.sources is None:
            return None
        values = {}
        for name, source in block.sources.items():
            value = self.state.find(source.path)
            if value is MISSING and not source.has_default:
                message = f"input '{name}': there is no '{source.path}'; {self.state.known_names()}"
                raise BlockError("input", message)
            values[name] = source.default if value is MISSING else value
        return values

    async def _check(self, block: Block, path: str, value: Any, calls: list[ProviderCall]) -> None:
        """Record what the block's own assertions say; they decide nothing."""
        checks = self.definition.checks.get(block.id)
        if not checks or self.services.check is None:
            return
        for result in await self.services.check(checks, text_of(value), sum_calls(calls)):
            await self.log.add(
                EventType.ASSERTION_RESULT,
                path,
                name=result.name,
                type=result.type,
                outcome=str(result.outcome),
                score=result.score,
                message=result.message or None,
            )


@asynccontextmanager
async def _within(limit_s: float | None, error: EvalError) -> AsyncIterator[None]:
    """Raise the error if the context takes longer; None: it may take any time."""
    try:
        async with asyncio.timeout(limit_s) as scope:
            yield
    except TimeoutError:
        if not scope.expired():
            raise
        raise error from None


def _plain(name: str) -> str:
    """Return the name of an error as people write it: `RateLimitError`, `rate-limit`, `rate`."""
    plain = name.lower().replace("_", "").replace("-", "")
    return plain.removesuffix("error").removesuffix("limit")


def initial_state(definition: WorkflowDefinition, inputs: Mapping[str, Any]) -> WorkflowState:
    """Return what is known before the first block: the inputs, with the declared defaults."""
    complete = dict(inputs)
    for name, item in definition.inputs.items():
        if item.default is not None:
            complete.setdefault(name, item.default)
    return WorkflowState(complete)


async def run_workflow(
    definition: WorkflowDefinition,
    inputs: Mapping[str, Any],
    services: EngineServices,
    fixtures: Fixtures | None = None,
    *,
    way: Callable[[WorkflowExecution], Awaitable[Any]] = WorkflowExecution.run,
) -> Finished:
    """Run a workflow to its end; `way` runs its blocks and returns the primary output.

    Raise `WorkflowError` where it gives no output, `SkippedError` where a limit of the run
    prevented a call. In every case its events and a final snapshot are in the store afterwards.
    """
    log = EventLog(services.store)
    execution = WorkflowExecution(
        definition, services, initial_state(definition, inputs), log, fixtures or Fixtures()
    )
    await log.add(EventType.WORKFLOW_STARTED, workflow=definition.name, entry=definition.entry)
    try:
        value = await way(execution)
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


@dataclass(frozen=True, slots=True)
class BlockReplay:
    """What a replayed block gave: its output, the outputs by handle, and its model calls."""

    value: Any
    outputs: Mapping[str, Any]
    calls: tuple[ProviderCall, ...]


async def replay_block(
    definition: WorkflowDefinition,
    block_id: str,
    inputs: Mapping[str, Any],
    services: EngineServices,
) -> BlockReplay:
    """Run a block on the values of its input handles; nothing before or after it runs.

    A handle without a value has the default of its input. Raises `WorkflowError` if there is no
    such block or it fails, and what `run_workflow` raises beside it.
    """
    block = definition.blocks.get(block_id)
    if block is None:
        raise WorkflowError("workflow", f"the workflow has no block '{block_id}'")
    if lacking := _handles_without_value(block, inputs):
        raise WorkflowError("workflow", f"block '{block_id}': {lacking}")
    execution = WorkflowExecution(
        definition, services, _frozen_state(block, inputs), EventLog(services.store)
    )
    try:
        value = await execution.run_block(_frozen(block))
    except BlockError as error:
        raise WorkflowError("workflow", f"block '{block_id}': {error}") from error
    outputs = block_outputs(block, value, execution.state.outputs)
    return BlockReplay(value, outputs, tuple(execution.calls))


def _handles_without_value(block: Block, inputs: Mapping[str, Any]) -> str:
    """Return which handles of a block have neither a value nor a default; empty if all have one."""
    sources = block.sources or {}
    lacking = [
        f"'{handle.handle_id}' (input '{handle.name}')"
        for handle in block_handles(block)
        if handle.name is not None
        and handle.handle_id not in inputs
        and not sources[handle.name].has_default
    ]
    if not lacking:
        return ""
    rest = ", ".join(inputs) or "none"
    return f"no value for {', '.join(lacking)}; the eval has values for {rest}"


def _frozen_state(block: Block, inputs: Mapping[str, Any]) -> WorkflowState:
    """Return what the block sees: declared inputs by name, or all of the object's keys."""
    handles = block_handles(block)
    values = {
        handle.name: inputs[handle.handle_id] for handle in handles if handle.handle_id in inputs
    }
    if None not in values:
        return WorkflowState({name: value for name, value in values.items() if name is not None})
    whole = values[None]
    members = dict(whole) if isinstance(whole, Mapping) else {"input": whole}
    state = WorkflowState(members)
    # Blocks inside a loop name outputs of blocks before it.
    state.outputs.update(members)
    return state


def _frozen(block: Block) -> Block:
    """Return the block with its inputs taken from what was frozen."""
    if block.sources is None:
        return block
    frozen = {
        name: source.model_copy(update={"path": f"workflow.{name}"})
        for name, source in block.sources.items()
    }
    # `sources` is cached: a copy would keep what it was.
    return block.model_copy(update={"inputs": frozen, "sources": frozen})
