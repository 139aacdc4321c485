"""The base of all shapes on the wire, and the shapes that several resources share."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")
Identifier = Annotated[str, Field(min_length=1, max_length=200)]


class RequestBody(BaseModel):
    """A request: unknown keys and values of another type are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ResponseBody(BaseModel):
    """A response."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LifecycleStatus(StrEnum):
    """How far a run or a result is; the last three are final."""

    PENDING = "pending"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"


FINAL = frozenset({LifecycleStatus.COMPLETED, LifecycleStatus.ERROR, LifecycleStatus.CANCELLED})


class ExecutionError(ResponseBody):
    """Why an execution gave no output."""

    code: str
    message: str


class Lifecycle(ResponseBody):
    """The status of a run, a step or a result; `error` only stands in a failed one."""

    status: LifecycleStatus
    error: ExecutionError | None = Field(default=None, exclude_if=lambda error: error is None)


class StorageDamage(ResponseBody):
    """The fields of a record that are null because the store has lost or damaged their objects."""

    fields: list[str]
    message: str


# Only stands in a record that is damaged.
OptionalDamage = Annotated[StorageDamage | None, Field(exclude_if=lambda damage: damage is None)]


class Timing(ResponseBody):
    """When something was created, started and ended (UTC), and how long it ran."""

    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    duration_ms: int | None = None


class ListMetadata(ResponseBody):
    """The cursors of a page: ids to pass as `before` and `after`; null where nothing follows."""

    before: str | None = None
    after: str | None = None


class Page(ResponseBody, Generic[Item]):
    """A page of a list, newest first."""

    data: list[Item]
    list_metadata: ListMetadata


class ErrorBody(ResponseBody):
    """An error: what is wrong, and what would work."""

    detail: str


class Mistake(ResponseBody):
    """One mistake of a request: where it stands, and what is wrong there."""

    loc: list[str | int]
    msg: str
    type: str


class MistakesBody(ResponseBody):
    """All mistakes of a request."""

    detail: list[Mistake]
