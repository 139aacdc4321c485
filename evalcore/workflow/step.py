"""One run of one block: its inputs, its attempts within their limits, what it declares."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast

from evalcore.errors import EvalError
from evalcore.model.evidence import UNMEASURED
from evalcore.model.exchange import SkippedError
from evalcore.workflow.context import BlockType, Context
from evalcore.workflow.declared import check_outputs
from evalcore.workflow.definition import Block, Retry
from evalcore.workflow.events import EventType
from evalcore.workflow.failure import BlockError, NoExecutorError
from evalcore.workflow.usage import Call, Meter, sum_calls
from evalcore.workflow.values import MISSING, parsed, text_of

if TYPE_CHECKING:
    from evalcore.workflow.engine import Execution

BLOCK_TYPES: Final = (
    "llm",
    "linear",
    "gate",
    "synthesize",
    "dispatch",
    "code",
    "http",
    "loop",
    "workflow",
)
_GIVEN_AS_TEXT: Final = frozenset({"llm", "linear", "gate", "synthesize"})


async def run_block(execution: Execution, block: Block) -> Any:
    """Return the block's output, which is known to the execution then; raise `BlockError`.

    A block whose output is given does not run.
    """
    place = f"{execution.prefix}{block.id}"
    if not execution.prefix:
        execution.invocations[block.id] = execution.invocations.get(block.id, 0) + 1
    await execution.log.add(EventType.BLOCK_STARTED, place, type=block.type)
    started = time.perf_counter()
    given = execution.given.outputs.get(block.id)
    if given is not None:
        value = given if block.type in _GIVEN_AS_TEXT else parsed(given)
    else:
        value = await _run(execution, block, place)
    execution.state.outputs[block.id] = value
    duration_ms = round((time.perf_counter() - started) * 1000, 3)
    if given is None and not execution.prefix:
        before_ms = execution.durations_ms.get(block.id, 0.0)
        execution.durations_ms[block.id] = before_ms + duration_ms
    await execution.log.add(
        EventType.BLOCK_COMPLETED,
        place,
        output=text_of(value),
        duration_ms=duration_ms,
        given=True if given is not None else None,
    )
    return value


async def _run(execution: Execution, block: Block, place: str) -> Any:
    """Return the output of a block that really runs, with its limits and its checks."""
    caps = block.caps
    meters = execution.meters if caps is None else (*execution.meters, Meter(caps))
    before = len(execution.calls)
    started = time.perf_counter()
    limit_s = None if caps is None or caps.warn else caps.duration_s
    try:
        async with asyncio.timeout(limit_s) as scope:
            value = await _attempts(execution, block, place, meters)
    except TimeoutError:
        if not scope.expired():
            raise
        message = f"max_duration_seconds: no output within {limit_s:g} s"
        raise BlockError("limit", message) from None
    took_s = time.perf_counter() - started
    if caps is not None and caps.duration_s is not None and took_s > caps.duration_s:
        message = f"took {took_s:.1f} s, the limit is {caps.duration_s:g}"
        await execution.log.add(EventType.LIMIT_EXCEEDED, place, message=message)
    await _check(execution, block, place, value, execution.calls[before:])
    return value


async def _attempts(
    execution: Execution, block: Block, place: str, meters: tuple[Meter, ...]
) -> Any:
    attempt = 1
    while True:
        try:
            return await _attempt(execution, block, place, meters)
        except BlockError as error:
            retry = block.retry
            if attempt >= retry.attempts or not error.retryable or _is_final(error, retry):
                raise
            wait_s = retry.base_s * (2 ** (attempt - 1) if retry.exponential else 1)
            message = f"block '{place}', attempt {attempt}: {error}"
            execution.errors.append(message)
            await execution.log.add(
                EventType.BLOCK_RETRIED, place, attempt=attempt, message=str(error), wait_s=wait_s
            )
            attempt += 1
            await asyncio.sleep(wait_s)


async def _attempt(
    execution: Execution, block: Block, place: str, meters: tuple[Meter, ...]
) -> Any:
    context = Context(
        block=block,
        definition=execution.definition,
        inputs=resolve_inputs(execution, block),
        given=execution.given.outputs,
        state=execution.state,
        services=execution.services,
        log=execution.log,
        place=place,
        calls=execution.calls,
        call_block=execution.call_block or block.id,
        meters=meters,
        run_inner=execution.run_inner,
        run_child=partial(_child, execution, block, meters),
    )
    run = block_type(block.type)
    try:
        async with asyncio.timeout(block.timeout_s) as scope:
            value = await run(block, context)
    except TimeoutError:
        if not scope.expired():
            raise
        message = f"no output within {block.timeout_s:g} s (timeout_seconds)"
        raise BlockError("timeout", message, retryable=True) from None
    except (BlockError, SkippedError, NoExecutorError):
        raise
    except EvalError as error:
        raise BlockError(type(error).__name__, str(error)) from error
    check_outputs(block, value)
    return value


async def _child(
    execution: Execution,
    block: Block,
    meters: tuple[Meter, ...],
    definition: Any,
    inputs: Mapping[str, Any],
) -> Any:
    return await execution.run_child(block, definition, inputs, meters)


def block_type(name: str) -> BlockType:
    """Return what runs blocks of this type."""
    if name not in BLOCK_TYPES:
        raise BlockError("type", f"unknown type '{name}'; known: {', '.join(BLOCK_TYPES)}")
    module = import_module(f"evalcore.workflow.blocks.{name}")
    return cast("BlockType", module.run)


def resolve_inputs(execution: Execution, block: Block) -> dict[str, Any] | None:
    """Return the values of the declared inputs; raise `BlockError` for one that is nowhere."""
    if block.inputs is None:
        return None
    values = {}
    for name, ref in block.inputs.items():
        found = execution.state.find(ref.path)
        if found is MISSING:
            if not ref.has_default:
                known = execution.state.known()
                raise BlockError("input", f"input '{name}': there is no '{ref.path}'; {known}")
            found = ref.default
        values[name] = found
    return values


_PLAIN: Final[Callable[[str], str]] = lambda name: (  # noqa: E731
    name.lower().replace("_", "").replace("-", "").removesuffix("error").removesuffix("limit")
)


def _is_final(error: BlockError, retry: Retry) -> bool:
    """Whether `non_retryable_errors` names the error: `ValueError`, `timeout`, `RateLimitError`."""
    return _PLAIN(error.kind) in {_PLAIN(name) for name in retry.never}


async def _check(
    execution: Execution, block: Block, place: str, value: Any, calls: list[Call]
) -> None:
    """Record what the block's own assertions say; they decide nothing."""
    if not block.checks or execution.services.check is None:
        return
    metrics = sum_calls(calls) if calls else UNMEASURED
    for result in await execution.services.check(block.checks, text_of(value), metrics):
        await execution.log.add(
            EventType.ASSERTION_RESULT,
            place,
            name=result.name,
            type=result.type,
            outcome=str(result.outcome),
            score=result.score,
            message=result.message or None,
        )
