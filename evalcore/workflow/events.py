"""What an execution leaves: events, snapshots, calls of providers, and how blocks fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from math import fsum
from typing import Any, Final, NamedTuple

from evalcore.errors import KindError, TargetError
from evalcore.model.evidence import UNMEASURED, Metrics, sum_tokens

NO_EXECUTOR: Final = (
    "Case '{id}' requires an executor (no fixtures for all expected blocks) "
    "but no executor was provided."
)


class BlockError(KindError):
    """A block gave no output. `kind` is what `non_retryable_errors` names.

    `retryable`: trying again may help. `route`: the block to go on with, where an inner block of a
    loop names one.
    """

    def __init__(
        self, kind: str, message: str, *, retryable: bool = False, route: str | None = None
    ) -> None:
        super().__init__(kind, message)
        self.retryable = retryable
        self.route = route


class WorkflowError(TargetError):
    """A workflow ended without an output: a block failed and no `error_route` took over."""


class NoExecutorError(TargetError):
    """A block needs a model, and no provider is configured."""


class EventType(StrEnum):
    """The types of events."""

    WORKFLOW_STARTED = "workflow_started"
    BLOCK_STARTED = "block_started"
    MODEL_CALL = "model_call"
    HTTP_CALL = "http_call"
    BLOCK_RETRIED = "block_retried"
    BLOCK_COMPLETED = "block_completed"
    BLOCK_FAILED = "block_failed"
    BLOCK_SKIPPED = "block_skipped"
    ROUTE_TAKEN = "route_taken"
    LOOP_ROUND = "loop_round"
    LIMIT_EXCEEDED = "limit_exceeded"
    ASSERTION_RESULT = "assertion_result"
    WORKFLOW_COMPLETED = "workflow_completed"
    WORKFLOW_FAILED = "workflow_failed"


class Event(NamedTuple):
    """One event. `sequence` counts from 1 within an execution; `at_ms` since it began.

    `block` is the block's id, below those of the sub-workflows it stands in (`outer/inner`).
    """

    sequence: int
    type: str
    at_ms: float
    block: str | None = None
    data: Mapping[str, Any] = {}


class Snapshot(NamedTuple):
    """What was known after the event `sequence`.

    `state` is `running`, `completed` or `failed`; `outputs` are the outputs of blocks as text,
    `values` what they are as JSON values.
    """

    sequence: int
    state: str
    outputs: Mapping[str, str]
    values: Mapping[str, Any]
    error: str | None = None


class ProviderCall(NamedTuple):
    """One exchange with a provider. Calls of the same `group` ran at the same time.

    `part` is the exit of a dispatch that made it; `is_model` is False for a plain HTTP request.
    """

    provider: str
    model: str
    block: str
    metrics: Metrics
    attempts: int = 1
    recorded: bool = False
    error: str | None = None
    group: int = 0
    part: str | None = None
    is_model: bool = True

    @property
    def output_id(self) -> str:
        """Return the id of the output that the call made: `block` or `block.exit`."""
        return self.block if self.part is None else f"{self.block}.{self.part}"

    def as_json(self) -> dict[str, Any]:
        """Return the call as evidence holds it (docs/decisions/0015)."""
        measured = self.metrics
        return {
            "provider": self.provider,
            "model": self.model,
            "block": self.output_id,
            "latency_ms": measured.latency_ms,
            "ttft_ms": measured.ttft_ms,
            "cost_usd": measured.cost_usd,
            "input_tokens": measured.input_tokens,
            "output_tokens": measured.output_tokens,
            **measured.token_parts,
            "attempts": self.attempts,
            "recorded": self.recorded,
            "error": self.error,
        }


def sum_calls(calls: Sequence[ProviderCall]) -> Metrics:
    """Return the sums over the calls; of those that ran at the same time, the longest latency."""
    answered = [call for call in calls if call.error is None]
    if not answered:
        return UNMEASURED
    longest: dict[int, float] = {}
    for call in answered:
        if call.metrics.latency_ms is not None:
            before = longest.get(call.group, 0.0)
            longest[call.group] = max(before, call.metrics.latency_ms)
    first = answered[0].metrics.ttft_ms if len(answered) == 1 else None
    measured = [call.metrics for call in answered]
    return Metrics(
        latency_ms=round(sum(longest.values()), 1) if longest else None,
        ttft_ms=first,
        cost_usd=_sum(m.cost_usd for m in measured),
        **sum_tokens(measured),
    )


def by_block(calls: Iterable[ProviderCall]) -> dict[str, Metrics]:
    """Return the sums of each block (and exit) that called a provider."""
    calls_by_block: dict[str, list[ProviderCall]] = {}
    for call in calls:
        for block in {call.block, call.output_id}:
            calls_by_block.setdefault(block, []).append(call)
    summed = {block: sum_calls(members) for block, members in calls_by_block.items()}
    return {block: metrics for block, metrics in summed.items() if metrics != UNMEASURED}


def _sum(values: Iterable[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return fsum(measured) if measured else None
