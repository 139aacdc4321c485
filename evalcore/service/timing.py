"""Status and times of rows as the wire shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from evalcore.service.database.sessions import utc
from evalcore.service.wire.base import ExecutionError, Lifecycle, LifecycleStatus, Timing


class Timed(Protocol):
    """A row with times."""

    created_at: Any
    started_at: Any
    completed_at: Any


def lifecycle_of(status: str, error: Any) -> Lifecycle:
    """Return a status with the error that a failed one has."""
    return Lifecycle(
        status=LifecycleStatus(status),
        error=None if not error else ExecutionError.model_validate(error),
    )


def timing_of(row: Timed) -> Timing:
    """Return a row's times in UTC, and how long it ran."""
    created, started, completed = (
        utc(row.created_at),
        utc(row.started_at),
        utc(row.completed_at),
    )
    return Timing(
        created_at=created or datetime.min,
        started_at=started,
        completed_at=completed,
        duration_ms=None
        if started is None or completed is None
        else max(0, round((completed - started).total_seconds() * 1000)),
    )
