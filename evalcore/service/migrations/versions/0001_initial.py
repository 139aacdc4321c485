"""The tables of the first version."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

# The indexes of each table, in the order in which the tables are created.
_INDEXES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "audit_log": (("project_id", "number"),),
    "projects": (),
    "eval_results": (
        ("eval_id", "number"),
        ("project_id", "number"),
        ("project_id", "workflow_id", "number"),
        ("run_id", "number"),
        ("run_id", "status", "verdict"),
    ),
    "eval_revisions": (("eval_id",),),
    "eval_runs": (
        ("project_id", "number"),
        ("project_id", "workflow_id", "number"),
        ("status", "lease_until"),
    ),
    "evals": (("project_id", "workflow_id", "number"), ("workflow_id", "block_id", "number")),
    "files": (),
    "tokens": (),
    "workflow_runs": (("project_id", "workflow_id", "number"), ("status", "lease_until")),
    "workflow_steps": (("run_id", "number"),),
    "workflow_versions": (),
    "workflows": (("project_id", "number"),),
}


def upgrade() -> None:
    """Create all tables."""
    _create_audit_log()
    _create_projects()
    _create_eval_results()
    _create_eval_revisions()
    _create_eval_runs()
    _create_evals()
    _create_files()
    _create_tokens()
    _create_workflow_runs()
    _create_workflow_steps()
    _create_workflow_versions()
    _create_workflows()


def downgrade() -> None:
    """Drop all tables."""
    for table, indexes in reversed(_INDEXES.items()):
        with op.batch_alter_table(table, schema=None) as batch:
            for columns in reversed(indexes):
                batch.drop_index(op.f(_index_name(table, columns)))
        op.drop_table(table)


def _create_audit_log() -> None:
    op.create_table(
        "audit_log",
        _number(),
        _text("project_id", nullable=True),
        _text("token_id", nullable=True),
        _time("at", nullable=False),
        _text("method", 10),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        _text("resource_id", nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_log")),
    )
    _create_indexes("audit_log")


def _create_projects() -> None:
    op.create_table(
        "projects",
        _text("id"),
        _text("name", 200),
        _time("created_at", nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )


def _create_eval_results() -> None:
    _create_resource(
        "eval_results",
        _text("run_id"),
        _text("eval_id"),
        _text("revision_id"),
        _text("workflow_id"),
        _text("block_id", 500),
        _text("block_type", 100, nullable=True),
        _text("trigger", 20),
        _text("status", 20),
        _text("verdict", 20, nullable=True),
        _json("error"),
        *_payload("handle_outputs"),
        *_payload("assertion_result"),
        _json("fingerprints"),
        _time("started_at"),
        _time("completed_at"),
        unique=("run_id", "eval_id"),
    )


def _create_eval_revisions() -> None:
    _create_resource(
        "eval_revisions",
        _text("eval_id"),
        _text("block_id", 500),
        *_payload("source"),
        *_payload("handle_inputs"),
        _json("assertion"),
        _text("schema_fingerprint", nullable=True),
        _text("inputs_fingerprint"),
        _text("assertion_fingerprint"),
    )


def _create_eval_runs() -> None:
    _create_resource(
        "eval_runs",
        _text("workflow_id"),
        _text("version_id"),
        _text("trigger", 20),
        _text("block_id", 500, nullable=True),
        _text("eval_id", nullable=True),
        sa.Column("total_evals", sa.Integer(), nullable=False),
        _text("status", 20),
        _json("error"),
        _time("started_at"),
        _time("completed_at"),
        _text("idempotency_key", 255, nullable=True),
        _text("request_sha256", nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        _text("engine_run", 100, nullable=True),
        _text("worker", nullable=True),
        _time("lease_until"),
        unique=("project_id", "idempotency_key"),
    )


def _create_evals() -> None:
    _create_resource(
        "evals",
        _text("workflow_id"),
        _text("block_id", 500),
        _text("name", 500, nullable=True),
        _text("revision_id"),
        _text("latest_result_id", nullable=True),
        _text("latest_passing_id", nullable=True),
        _text("latest_failing_id", nullable=True),
        _time("deleted_at"),
    )


def _create_files() -> None:
    _create_resource(
        "files",
        _text("filename", 500),
        _text("mime_type", 200),
        sa.Column("size", _big_integer(), nullable=False),
        _text("sha256"),
        sa.Column("object_key", sa.Text(), nullable=False),
    )


def _create_tokens() -> None:
    _create_resource(
        "tokens",
        _text("name", 200),
        _text("scopes", 100),
        _text("secret_hash", 300),
        _time("expires_at"),
        _time("revoked_at"),
    )


def _create_workflow_runs() -> None:
    _create_resource(
        "workflow_runs",
        _text("workflow_id"),
        _text("version_id"),
        *_payload("inputs"),
        *_payload("output"),
        _text("status", 20),
        _json("error"),
        _time("started_at"),
        _time("completed_at"),
        _text("worker", nullable=True),
        _time("lease_until"),
    )


def _create_workflow_steps() -> None:
    _create_resource(
        "workflow_steps",
        _text("run_id"),
        _text("block_id", 500),
        _text("block_type", 100, nullable=True),
        sa.Column("round", sa.Integer(), nullable=True),
        _text("status", 20),
        _json("error"),
        *_payload("inputs"),
        *_payload("outputs"),
        _time("started_at"),
        _time("completed_at"),
    )


def _create_workflow_versions() -> None:
    _create_resource(
        "workflow_versions",
        _text("workflow_id"),
        _text("version_id"),
        *_payload("definition"),
        unique=("workflow_id", "version_id"),
    )


def _create_workflows() -> None:
    _create_resource(
        "workflows",
        _text("name", 200),
        _text("draft_id"),
        sa.Column("published", sa.Integer(), nullable=False),
        _time("deleted_at"),
    )


def _create_resource(table: str, *columns: sa.Column[Any], unique: tuple[str, ...] = ()) -> None:
    """Create a table whose rows are of a project: a number for pages, an id for addresses."""
    rules: list[sa.Constraint] = [
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f(f"fk_{table}_project_id")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f(f"pk_{table}")),
        sa.UniqueConstraint("id", name=op.f(f"uq_{table}_id")),
    ]
    if unique:
        name = op.f(f"uq_{table}_{'_'.join(unique)}")
        rules.append(sa.UniqueConstraint(*unique, name=name))
    created_at = _time("created_at", nullable=False)
    identity = (_number(), _text("id"), _text("project_id"), created_at)
    op.create_table(table, *columns, *identity, *rules)
    _create_indexes(table)


def _create_indexes(table: str) -> None:
    with op.batch_alter_table(table, schema=None) as batch:
        for columns in _INDEXES[table]:
            batch.create_index(op.f(_index_name(table, columns)), list(columns), unique=False)


def _index_name(table: str, columns: tuple[str, ...]) -> str:
    return f"ix_{table}_{'_'.join(columns)}"


def _text(name: str, length: int = 64, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.String(length=length), nullable=nullable)


def _time(name: str, *, nullable: bool = True) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable)


def _json(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON(none_as_null=True), nullable=True)


def _payload(name: str) -> tuple[sa.Column[Any], sa.Column[Any]]:
    """Return the columns of a JSON value, and of its key in the store if it is large."""
    return _json(name), sa.Column(f"{name}_ref", sa.Text(), nullable=True)


def _number() -> sa.Column[Any]:
    return sa.Column("number", _big_integer(), autoincrement=True, nullable=False)


def _big_integer() -> sa.types.TypeEngine[Any]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")
