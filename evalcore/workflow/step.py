"""One run of one block: its inputs, its attempts within their limits, what it declares."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import EvalError
from evalcore.model.evidence import UNMEASURED
from evalcore.model.exchange import SkippedError
from evalcore.workflow.bounds import Retry
from evalcore.workflow.context import Context
from evalcore.workflow.declared_outputs import check_outputs
from evalcore.workflow.definition import Block, WorkflowDefinition
from evalcore.workflow.events import EventType
from evalcore.workflow.failure import BlockError, NoExecutorError
from evalcore.workflow.recorded_steps import record_step
from evalcore.workflow.usage import Meter, ProviderCall, sum_calls
from evalcore.workflow.values import MISSING, WorkflowState, parsed, text_of

if TYPE_CHECKING:
    from evalcore.workflow.engine import WorkflowExecution


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
    check_outputs(block, value)
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
