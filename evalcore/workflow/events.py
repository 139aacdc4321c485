"""What happens while a workflow runs: numbered events, and snapshots of what is known."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class EventType(StrEnum):
    """The types of events."""

    WORKFLOW_STARTED = "workflow_started"
    BLOCK_STARTED = "block_started"
    MODEL_CALL = "model_call"
    HTTP_CALL = "http_call"
    TOOL_CALL = "tool_call"
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
