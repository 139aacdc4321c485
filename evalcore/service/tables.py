"""The tables of the service.

Lists go by `number`, which grows in the order of creation; `id` is what the wire shows. Values that
may be large are read where they are asked for (`undefer_group("values")`).
"""

from __future__ import annotations

import secrets
import string
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from evalcore.service.models import ExecutionError, Lifecycle, LifecycleStatus, Timing
from evalcore.storage.layout import new_run_id

# SQLite numbers rows by itself only where the key is a plain INTEGER.
_NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")
# Not JSONB, which keeps no order of keys.
_JSON: Final = JSON(none_as_null=True)
_ID: Final = String(64)
_LARGE: Final[Any] = {"deferred": True, "deferred_group": "values"}

NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class _UtcTime(TypeDecorator[datetime]):
    """A time in UTC; SQLite stores no time zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:  # noqa: ARG002
        """Return a stored time with its time zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


_TIME: Final = _UtcTime()


class Table(DeclarativeBase):
    """The base of all tables."""

    metadata = MetaData(naming_convention=NAMES)


class _Listed:
    """What has an id and a place in lists."""

    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(_ID, unique=True)
    created_at: Mapped[datetime] = mapped_column(_TIME)


class _Timed(_Listed):
    """What has a status, and begins and ends."""

    status: Mapped[str] = mapped_column(String(20))
    error: Mapped[Any] = mapped_column(_JSON, nullable=True)
    started_at: Mapped[datetime | None] = mapped_column(_TIME)
    completed_at: Mapped[datetime | None] = mapped_column(_TIME)

    @property
    def lifecycle(self) -> Lifecycle:
        """The status as the wire shows it, with the error that a failed row has."""
        error = ExecutionError.model_validate(self.error) if self.error else None
        return Lifecycle(status=LifecycleStatus(self.status), error=error)

    @property
    def timing(self) -> Timing:
        """The times, and how long it ran."""
        duration_ms = None
        if self.started_at is not None and self.completed_at is not None:
            lasted = self.completed_at - self.started_at
            duration_ms = max(0, round(lasted.total_seconds() * 1000))
        return Timing(
            created_at=self.created_at,
            started_at=self.started_at,
            completed_at=self.completed_at,
            duration_ms=duration_ms,
        )


class _Executed(_Timed):
    """What workers execute as a run of the engine in the store (`engine_run`).

    `unfinished` until its status is final and its run in the store has ended, too.
    """

    engine_run: Mapped[str] = mapped_column(String(100))
    unfinished: Mapped[bool] = mapped_column(default=True, index=True)
    workflow_id: Mapped[str] = mapped_column(_ID)
    version_id: Mapped[str] = mapped_column(_ID)


class TokenRow(_Listed, Table):
    """A bearer token: its secret is stored as an argon2 hash only."""

    __tablename__ = "tokens"

    name: Mapped[str] = mapped_column(String(200))
    scopes: Mapped[str] = mapped_column(String(100))
    secret_hash: Mapped[str] = mapped_column(String(300))
    expires_at: Mapped[datetime | None] = mapped_column(_TIME)
    revoked_at: Mapped[datetime | None] = mapped_column(_TIME)


class WorkflowRow(_Listed, Table):
    """A registered workflow; `draft_id` is the version that is edited."""

    __tablename__ = "workflows"

    name: Mapped[str] = mapped_column(String(200))
    draft_id: Mapped[str] = mapped_column(_ID)
    published: Mapped[int] = mapped_column(Integer, default=0)
    deleted_at: Mapped[datetime | None] = mapped_column(_TIME)


class WorkflowVersionRow(_Listed, Table):
    """One definition of a workflow: a draft, or published as `v1`, `v2`, …"""

    __tablename__ = "workflow_versions"
    __table_args__ = (UniqueConstraint("workflow_id", "version_id"),)

    workflow_id: Mapped[str] = mapped_column(_ID)
    version_id: Mapped[str] = mapped_column(_ID)
    definition: Mapped[Any] = mapped_column(_JSON, nullable=True)


class WorkflowRunRow(_Executed, Table):
    """One execution of a workflow."""

    __tablename__ = "workflow_runs"

    inputs: Mapped[Any] = mapped_column(_JSON, nullable=True)
    output: Mapped[Any] = mapped_column(_JSON, nullable=True)


class WorkflowStepRow(_Timed, Table):
    """One time that a block ran in a workflow run."""

    __tablename__ = "workflow_steps"
    __table_args__ = (Index(None, "run_id", "number"),)

    run_id: Mapped[str] = mapped_column(_ID)
    block_id: Mapped[str] = mapped_column(String(500))
    block_type: Mapped[str | None] = mapped_column(String(100))
    round: Mapped[int | None] = mapped_column(Integer)
    inputs: Mapped[Any] = mapped_column(_JSON, nullable=True)
    outputs: Mapped[Any] = mapped_column(_JSON, nullable=True)


class FileRow(_Listed, Table):
    """A file; its bytes are the object `object_key` of the store."""

    __tablename__ = "files"

    filename: Mapped[str] = mapped_column(String(500))
    mime_type: Mapped[str] = mapped_column(String(200))
    size: Mapped[int] = mapped_column(_NUMBER)
    sha256: Mapped[str] = mapped_column(String(64))
    object_key: Mapped[str] = mapped_column(Text)


class EvalRow(_Listed, Table):
    """A saved eval; `revision_id` is what it says now.

    The three results are its latest ones, kept here so that a list of evals needs no search.
    """

    __tablename__ = "evals"
    __table_args__ = (
        Index(None, "workflow_id", "number"),
        Index(None, "workflow_id", "block_id", "number"),
    )

    workflow_id: Mapped[str] = mapped_column(_ID)
    block_id: Mapped[str] = mapped_column(String(500))
    name: Mapped[str | None] = mapped_column(String(500))
    revision_id: Mapped[str] = mapped_column(_ID)
    latest_result_id: Mapped[str | None] = mapped_column(_ID)
    latest_passing_id: Mapped[str | None] = mapped_column(_ID)
    latest_failing_id: Mapped[str | None] = mapped_column(_ID)
    deleted_at: Mapped[datetime | None] = mapped_column(_TIME)


class EvalRevisionRow(_Listed, Table):
    """What an eval said at one time: never changed, so that results can name it."""

    __tablename__ = "eval_revisions"

    eval_id: Mapped[str] = mapped_column(_ID, index=True)
    block_id: Mapped[str] = mapped_column(String(500))
    source: Mapped[Any] = mapped_column(_JSON, nullable=True)
    handle_inputs: Mapped[Any] = mapped_column(_JSON, nullable=True, **_LARGE)
    assertion: Mapped[Any] = mapped_column(_JSON, nullable=True)
    schema_fingerprint: Mapped[str | None] = mapped_column(String(64))
    inputs_fingerprint: Mapped[str] = mapped_column(String(64))
    assertion_fingerprint: Mapped[str] = mapped_column(String(64))


class EvalRunRow(_Executed, Table):
    """A batch of evals."""

    __tablename__ = "eval_runs"
    __table_args__ = (
        Index(None, "workflow_id", "number"),
        Index(None, "eval_id", "number"),
        Index(None, "block_id", "number"),
        Index(None, "status", "number"),
        Index(None, "trigger", "number"),
    )

    trigger: Mapped[str] = mapped_column(String(20))
    block_id: Mapped[str | None] = mapped_column(String(500))
    eval_id: Mapped[str | None] = mapped_column(_ID)
    total_evals: Mapped[int] = mapped_column(Integer)
    idempotency_key: Mapped[str | None] = mapped_column(String(255), unique=True)
    request_sha256: Mapped[str | None] = mapped_column(String(64))


class EvalResultRow(_Timed, Table):
    """One eval's execution in a run: never changed once its status is final."""

    __tablename__ = "eval_results"
    __table_args__ = (
        UniqueConstraint("run_id", "eval_id"),
        Index(None, "run_id", "number"),
        Index(None, "run_id", "status", "verdict"),
        Index(None, "workflow_id", "number"),
        Index(None, "eval_id", "number"),
        Index(None, "block_id", "number"),
        Index(None, "status", "number"),
        Index(None, "trigger", "number"),
    )

    run_id: Mapped[str] = mapped_column(_ID)
    eval_id: Mapped[str] = mapped_column(_ID)
    revision_id: Mapped[str] = mapped_column(_ID)
    workflow_id: Mapped[str] = mapped_column(_ID)
    block_id: Mapped[str] = mapped_column(String(500))
    block_type: Mapped[str | None] = mapped_column(String(100))
    trigger: Mapped[str] = mapped_column(String(20))
    verdict: Mapped[str | None] = mapped_column(String(20))
    handle_outputs: Mapped[Any] = mapped_column(_JSON, nullable=True, **_LARGE)
    assertion_result: Mapped[Any] = mapped_column(_JSON, nullable=True, **_LARGE)
    fingerprints: Mapped[Any] = mapped_column(_JSON, nullable=True)


_ALPHABET: Final = string.ascii_letters + string.digits
_LENGTH: Final = 22
_IDS: Final = len(_ALPHABET) ** _LENGTH


class Kind(StrEnum):
    """The prefix of each resource's ids."""

    TOKEN = "tok"
    WORKFLOW = "wf"
    DRAFT = "draft"
    WORKFLOW_RUN = "wfrun"
    STEP = "step"
    FILE = "file"
    EVAL = "wfnodeeval"
    REVISION = "rev"
    ASSERTION = "assert"
    EVAL_RUN = "wfevalrun"
    RESULT = "wfresult"


def new_id(kind: Kind) -> str:
    """Return an id that no other resource has (131 random bits)."""
    number, characters = secrets.randbelow(_IDS), []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return f"{kind}_" + "".join(characters)


def new_engine_run(now: datetime) -> str:
    """Return the id of a run of the engine, which does not exist yet."""
    return new_run_id(now, secrets.token_bytes(3))
