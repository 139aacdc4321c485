"""The tables of the service.

Every row but a project's belongs to one project, and every query names it. Lists go by `number`,
which grows in the order of creation; `id` is what the wire shows. JSON that may be large is a
payload: inline up to 64 KiB, else the key of an object in the store (`payload_*_ref`).
"""

from __future__ import annotations

import secrets
import string
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite numbers rows by itself only where the key is a plain INTEGER.
_NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")
# Not JSONB, which keeps no order of keys.
_JSON: Final = JSON(none_as_null=True)
_TIME: Final = DateTime(timezone=True)
_ID: Final = String(64)

NAMES: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class Table(DeclarativeBase):
    """The base of all tables."""

    metadata = MetaData(naming_convention=NAMES)


class ProjectRow(Table):
    """A project: what a token may see."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    created_at: Mapped[datetime] = mapped_column(_TIME)


class _Owned:
    """What belongs to a project and is listed."""

    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(_ID, unique=True)
    project_id: Mapped[str] = mapped_column(_ID, ForeignKey("projects.id"))
    created_at: Mapped[datetime] = mapped_column(_TIME)


class TokenRow(_Owned, Table):
    """A bearer token: its secret is stored as an argon2 hash only."""

    __tablename__ = "tokens"

    name: Mapped[str] = mapped_column(String(200))
    scopes: Mapped[str] = mapped_column(String(100))
    secret_hash: Mapped[str] = mapped_column(String(300))
    expires_at: Mapped[datetime | None] = mapped_column(_TIME)
    revoked_at: Mapped[datetime | None] = mapped_column(_TIME)


class WorkflowRow(_Owned, Table):
    """A registered workflow; `draft_id` is the version that is edited."""

    __tablename__ = "workflows"
    __table_args__ = (Index(None, "project_id", "number"),)

    name: Mapped[str] = mapped_column(String(200))
    draft_id: Mapped[str] = mapped_column(_ID)
    published: Mapped[int] = mapped_column(Integer, default=0)
    deleted_at: Mapped[datetime | None] = mapped_column(_TIME)


class WorkflowVersionRow(_Owned, Table):
    """One definition of a workflow: a draft, or published as `v1`, `v2`, …"""

    __tablename__ = "workflow_versions"
    __table_args__ = (UniqueConstraint("workflow_id", "version_id"),)

    workflow_id: Mapped[str] = mapped_column(_ID)
    version_id: Mapped[str] = mapped_column(_ID)
    definition: Mapped[Any] = mapped_column(_JSON, nullable=True)
    definition_ref: Mapped[str | None] = mapped_column(Text)


class WorkflowRunRow(_Owned, Table):
    """One execution of a workflow; `planning_run` is the run in the store, planned or not.

    `attempts` counts the times that a worker has begun it.
    """

    __tablename__ = "workflow_runs"
    __table_args__ = (
        Index(None, "project_id", "workflow_id", "number"),
        Index(None, "status", "lease_until"),
    )

    workflow_id: Mapped[str] = mapped_column(_ID)
    version_id: Mapped[str] = mapped_column(_ID)
    inputs: Mapped[Any] = mapped_column(_JSON, nullable=True)
    inputs_ref: Mapped[str | None] = mapped_column(Text)
    output: Mapped[Any] = mapped_column(_JSON, nullable=True)
    output_ref: Mapped[str | None] = mapped_column(Text)
    status: Mapped[str] = mapped_column(String(20))
    error: Mapped[Any] = mapped_column(_JSON, nullable=True)
    started_at: Mapped[datetime | None] = mapped_column(_TIME)
    completed_at: Mapped[datetime | None] = mapped_column(_TIME)
    planning_run: Mapped[str | None] = mapped_column(String(100))
    attempts: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    worker: Mapped[str | None] = mapped_column(_ID)
    lease_until: Mapped[datetime | None] = mapped_column(_TIME)


class WorkflowStepRow(_Owned, Table):
    """One time that a block ran in a workflow run."""

    __tablename__ = "workflow_steps"
    __table_args__ = (Index(None, "run_id", "number"),)

    run_id: Mapped[str] = mapped_column(_ID)
    block_id: Mapped[str] = mapped_column(String(500))
    block_type: Mapped[str | None] = mapped_column(String(100))
    round: Mapped[int | None] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(20))
    error: Mapped[Any] = mapped_column(_JSON, nullable=True)
    inputs: Mapped[Any] = mapped_column(_JSON, nullable=True)
    inputs_ref: Mapped[str | None] = mapped_column(Text)
    outputs: Mapped[Any] = mapped_column(_JSON, nullable=True)
    outputs_ref: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[datetime | None] = mapped_column(_TIME)
    completed_at: Mapped[datetime | None] = mapped_column(_TIME)


class FileRow(_Owned, Table):
    """A file; its bytes are the object `object_key` of the store."""

    __tablename__ = "files"

    filename: Mapped[str] = mapped_column(String(500))
    mime_type: Mapped[str] = mapped_column(String(200))
    size: Mapped[int] = mapped_column(_NUMBER)
    sha256: Mapped[str] = mapped_column(String(64))
    object_key: Mapped[str] = mapped_column(Text)


class EvalRow(_Owned, Table):
    """A saved eval; `revision_id` is what it says now.

    The three results are its latest ones, kept here so that a list of evals needs no search.
    """

    __tablename__ = "evals"
    __table_args__ = (
        Index(None, "project_id", "workflow_id", "number"),
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


class EvalRevisionRow(_Owned, Table):
    """What an eval said at one time: never changed, so that results can name it."""

    __tablename__ = "eval_revisions"

    eval_id: Mapped[str] = mapped_column(_ID, index=True)
    block_id: Mapped[str] = mapped_column(String(500))
    source: Mapped[Any] = mapped_column(_JSON, nullable=True)
    source_ref: Mapped[str | None] = mapped_column(Text)
    handle_inputs: Mapped[Any] = mapped_column(_JSON, nullable=True)
    handle_inputs_ref: Mapped[str | None] = mapped_column(Text)
    assertion: Mapped[Any] = mapped_column(_JSON, nullable=True)
    schema_fingerprint: Mapped[str | None] = mapped_column(String(64))
    inputs_fingerprint: Mapped[str] = mapped_column(String(64))
    assertion_fingerprint: Mapped[str] = mapped_column(String(64))


class EvalRunRow(_Owned, Table):
    """A batch of evals; `engine_run` is its run in the store.

    `planning_run` is the same id before the plan is whole. `attempts` counts the times that a
    worker has begun it since its last result; `cancel_requested` says that it has ended and its
    run in the store (and its flow run) has not.
    """

    __tablename__ = "eval_runs"
    __table_args__ = (
        Index(None, "project_id", "number"),
        Index(None, "project_id", "workflow_id", "number"),
        Index(None, "status", "lease_until"),
        Index(None, "project_id", "eval_id", "number"),
        Index(None, "project_id", "block_id", "number"),
        Index(None, "project_id", "status", "number"),
        Index(None, "project_id", "trigger", "number"),
        Index(None, "cancel_requested"),
        UniqueConstraint("project_id", "idempotency_key"),
    )

    workflow_id: Mapped[str] = mapped_column(_ID)
    version_id: Mapped[str] = mapped_column(_ID)
    trigger: Mapped[str] = mapped_column(String(20))
    block_id: Mapped[str | None] = mapped_column(String(500))
    eval_id: Mapped[str | None] = mapped_column(_ID)
    total_evals: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(20))
    error: Mapped[Any] = mapped_column(_JSON, nullable=True)
    started_at: Mapped[datetime | None] = mapped_column(_TIME)
    completed_at: Mapped[datetime | None] = mapped_column(_TIME)
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    request_sha256: Mapped[str | None] = mapped_column(String(64))
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    engine_run: Mapped[str | None] = mapped_column(String(100))
    planning_run: Mapped[str | None] = mapped_column(String(100))
    attempts: Mapped[int] = mapped_column(Integer, default=0, server_default="0")
    worker: Mapped[str | None] = mapped_column(_ID)
    lease_until: Mapped[datetime | None] = mapped_column(_TIME)


class EvalResultRow(_Owned, Table):
    """One eval's execution in a run: never changed once its status is final."""

    __tablename__ = "eval_results"
    __table_args__ = (
        UniqueConstraint("run_id", "eval_id"),
        Index(None, "run_id", "number"),
        Index(None, "run_id", "status", "verdict"),
        Index(None, "project_id", "number"),
        Index(None, "project_id", "workflow_id", "number"),
        Index(None, "project_id", "eval_id", "number"),
        Index(None, "project_id", "block_id", "number"),
        Index(None, "project_id", "status", "number"),
        Index(None, "project_id", "trigger", "number"),
    )

    run_id: Mapped[str] = mapped_column(_ID)
    eval_id: Mapped[str] = mapped_column(_ID)
    revision_id: Mapped[str] = mapped_column(_ID)
    workflow_id: Mapped[str] = mapped_column(_ID)
    block_id: Mapped[str] = mapped_column(String(500))
    block_type: Mapped[str | None] = mapped_column(String(100))
    trigger: Mapped[str] = mapped_column(String(20))
    status: Mapped[str] = mapped_column(String(20))
    verdict: Mapped[str | None] = mapped_column(String(20))
    error: Mapped[Any] = mapped_column(_JSON, nullable=True)
    handle_outputs: Mapped[Any] = mapped_column(_JSON, nullable=True)
    handle_outputs_ref: Mapped[str | None] = mapped_column(Text)
    assertion_result: Mapped[Any] = mapped_column(_JSON, nullable=True)
    assertion_result_ref: Mapped[str | None] = mapped_column(Text)
    fingerprints: Mapped[Any] = mapped_column(_JSON, nullable=True)
    started_at: Mapped[datetime | None] = mapped_column(_TIME)
    completed_at: Mapped[datetime | None] = mapped_column(_TIME)


class AuditRow(Table):
    """One write: who did what to which resource, and how it ended."""

    __tablename__ = "audit_log"
    __table_args__ = (Index(None, "project_id", "number"),)

    number: Mapped[int] = mapped_column(_NUMBER, primary_key=True, autoincrement=True)
    project_id: Mapped[str | None] = mapped_column(_ID)
    token_id: Mapped[str | None] = mapped_column(_ID)
    at: Mapped[datetime] = mapped_column(_TIME)
    method: Mapped[str] = mapped_column(String(10))
    path: Mapped[str] = mapped_column(Text)
    status: Mapped[int] = mapped_column(Integer)
    resource_id: Mapped[str | None] = mapped_column(_ID)


_ALPHABET: Final = string.ascii_letters + string.digits
_LENGTH: Final = 22
_IDS: Final = len(_ALPHABET) ** _LENGTH


class Kind(StrEnum):
    """The prefix of each resource's ids."""

    PROJECT = "proj"
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
    WORKER = "worker"


def new_id(kind: Kind) -> str:
    """Return an id that no other resource has (131 random bits)."""
    number, characters = secrets.randbelow(_IDS), []
    for _ in range(_LENGTH):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return f"{kind}_" + "".join(characters)
