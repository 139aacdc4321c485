"""The tables of the first version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "audit_log",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("project_id", sa.String(length=64), nullable=True),
        sa.Column("token_id", sa.String(length=64), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("method", sa.String(length=10), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("resource_id", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_log")),
    )
    with op.batch_alter_table("audit_log", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_audit_log_project_id_number"), ["project_id", "number"], unique=False
        )

    op.create_table(
        "projects",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_projects")),
        sa.UniqueConstraint("name", name=op.f("uq_projects_name")),
    )
    op.create_table(
        "eval_results",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("eval_id", sa.String(length=64), nullable=False),
        sa.Column("revision_id", sa.String(length=64), nullable=False),
        sa.Column("workflow_id", sa.String(length=64), nullable=False),
        sa.Column("block_id", sa.String(length=500), nullable=False),
        sa.Column("block_type", sa.String(length=100), nullable=True),
        sa.Column("trigger", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("verdict", sa.String(length=20), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("handle_outputs", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("handle_outputs_ref", sa.Text(), nullable=True),
        sa.Column("assertion_result", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("assertion_result_ref", sa.Text(), nullable=True),
        sa.Column("fingerprints", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_eval_results_project_id")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_eval_results")),
        sa.UniqueConstraint("id", name=op.f("uq_eval_results_id")),
        sa.UniqueConstraint("run_id", "eval_id", name=op.f("uq_eval_results_run_id_eval_id")),
    )
    with op.batch_alter_table("eval_results", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_eval_results_eval_id_number"), ["eval_id", "number"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_eval_results_project_id_number"), ["project_id", "number"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_eval_results_project_id_workflow_id_number"),
            ["project_id", "workflow_id", "number"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_eval_results_run_id_number"), ["run_id", "number"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_eval_results_run_id_status_verdict"),
            ["run_id", "status", "verdict"],
            unique=False,
        )

    op.create_table(
        "eval_revisions",
        sa.Column("eval_id", sa.String(length=64), nullable=False),
        sa.Column("block_id", sa.String(length=500), nullable=False),
        sa.Column("source", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("source_ref", sa.Text(), nullable=True),
        sa.Column("handle_inputs", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("handle_inputs_ref", sa.Text(), nullable=True),
        sa.Column("assertion", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("schema_fingerprint", sa.String(length=64), nullable=True),
        sa.Column("inputs_fingerprint", sa.String(length=64), nullable=False),
        sa.Column("assertion_fingerprint", sa.String(length=64), nullable=False),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_eval_revisions_project_id")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_eval_revisions")),
        sa.UniqueConstraint("id", name=op.f("uq_eval_revisions_id")),
    )
    with op.batch_alter_table("eval_revisions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_eval_revisions_eval_id"), ["eval_id"], unique=False)

    op.create_table(
        "eval_runs",
        sa.Column("workflow_id", sa.String(length=64), nullable=False),
        sa.Column("version_id", sa.String(length=64), nullable=False),
        sa.Column("trigger", sa.String(length=20), nullable=False),
        sa.Column("block_id", sa.String(length=500), nullable=True),
        sa.Column("eval_id", sa.String(length=64), nullable=True),
        sa.Column("total_evals", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("idempotency_key", sa.String(length=255), nullable=True),
        sa.Column("request_sha256", sa.String(length=64), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("engine_run", sa.String(length=100), nullable=True),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_eval_runs_project_id")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_eval_runs")),
        sa.UniqueConstraint("id", name=op.f("uq_eval_runs_id")),
        sa.UniqueConstraint(
            "project_id", "idempotency_key", name=op.f("uq_eval_runs_project_id_idempotency_key")
        ),
    )
    with op.batch_alter_table("eval_runs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_eval_runs_project_id_number"), ["project_id", "number"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_eval_runs_project_id_workflow_id_number"),
            ["project_id", "workflow_id", "number"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_eval_runs_status_lease_until"), ["status", "lease_until"], unique=False
        )

    op.create_table(
        "evals",
        sa.Column("workflow_id", sa.String(length=64), nullable=False),
        sa.Column("block_id", sa.String(length=500), nullable=False),
        sa.Column("name", sa.String(length=500), nullable=True),
        sa.Column("revision_id", sa.String(length=64), nullable=False),
        sa.Column("latest_result_id", sa.String(length=64), nullable=True),
        sa.Column("latest_passing_id", sa.String(length=64), nullable=True),
        sa.Column("latest_failing_id", sa.String(length=64), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_evals_project_id")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_evals")),
        sa.UniqueConstraint("id", name=op.f("uq_evals_id")),
    )
    with op.batch_alter_table("evals", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_evals_project_id_workflow_id_number"),
            ["project_id", "workflow_id", "number"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_evals_workflow_id_block_id_number"),
            ["workflow_id", "block_id", "number"],
            unique=False,
        )

    op.create_table(
        "files",
        sa.Column("filename", sa.String(length=500), nullable=False),
        sa.Column("mime_type", sa.String(length=200), nullable=False),
        sa.Column("size", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("object_key", sa.Text(), nullable=False),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_files_project_id")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_files")),
        sa.UniqueConstraint("id", name=op.f("uq_files_id")),
    )
    op.create_table(
        "tokens",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("scopes", sa.String(length=100), nullable=False),
        sa.Column("secret_hash", sa.String(length=300), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name=op.f("fk_tokens_project_id")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_tokens")),
        sa.UniqueConstraint("id", name=op.f("uq_tokens_id")),
    )
    op.create_table(
        "workflow_runs",
        sa.Column("workflow_id", sa.String(length=64), nullable=False),
        sa.Column("version_id", sa.String(length=64), nullable=False),
        sa.Column("inputs", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("inputs_ref", sa.Text(), nullable=True),
        sa.Column("output", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("output_ref", sa.Text(), nullable=True),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_workflow_runs_project_id")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_workflow_runs")),
        sa.UniqueConstraint("id", name=op.f("uq_workflow_runs_id")),
    )
    with op.batch_alter_table("workflow_runs", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_workflow_runs_project_id_workflow_id_number"),
            ["project_id", "workflow_id", "number"],
            unique=False,
        )
        batch_op.create_index(
            batch_op.f("ix_workflow_runs_status_lease_until"),
            ["status", "lease_until"],
            unique=False,
        )

    op.create_table(
        "workflow_steps",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("block_id", sa.String(length=500), nullable=False),
        sa.Column("block_type", sa.String(length=100), nullable=True),
        sa.Column("round", sa.Integer(), nullable=True),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("inputs", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("inputs_ref", sa.Text(), nullable=True),
        sa.Column("outputs", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("outputs_ref", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_workflow_steps_project_id")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_workflow_steps")),
        sa.UniqueConstraint("id", name=op.f("uq_workflow_steps_id")),
    )
    with op.batch_alter_table("workflow_steps", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_workflow_steps_run_id_number"), ["run_id", "number"], unique=False
        )

    op.create_table(
        "workflow_versions",
        sa.Column("workflow_id", sa.String(length=64), nullable=False),
        sa.Column("version_id", sa.String(length=64), nullable=False),
        sa.Column("definition", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("definition_ref", sa.Text(), nullable=True),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_workflow_versions_project_id")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_workflow_versions")),
        sa.UniqueConstraint("id", name=op.f("uq_workflow_versions_id")),
        sa.UniqueConstraint(
            "workflow_id", "version_id", name=op.f("uq_workflow_versions_workflow_id_version_id")
        ),
    )
    op.create_table(
        "workflows",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("draft_id", sa.String(length=64), nullable=False),
        sa.Column("published", sa.Integer(), nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("project_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["projects.id"], name=op.f("fk_workflows_project_id")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_workflows")),
        sa.UniqueConstraint("id", name=op.f("uq_workflows_id")),
    )
    with op.batch_alter_table("workflows", schema=None) as batch_op:
        batch_op.create_index(
            batch_op.f("ix_workflows_project_id_number"), ["project_id", "number"], unique=False
        )


def downgrade() -> None:
    """Drop all tables."""
    with op.batch_alter_table("workflows", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_workflows_project_id_number"))

    op.drop_table("workflows")
    op.drop_table("workflow_versions")
    with op.batch_alter_table("workflow_steps", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_workflow_steps_run_id_number"))

    op.drop_table("workflow_steps")
    with op.batch_alter_table("workflow_runs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_workflow_runs_status_lease_until"))
        batch_op.drop_index(batch_op.f("ix_workflow_runs_project_id_workflow_id_number"))

    op.drop_table("workflow_runs")
    op.drop_table("tokens")
    op.drop_table("files")
    with op.batch_alter_table("evals", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_evals_workflow_id_block_id_number"))
        batch_op.drop_index(batch_op.f("ix_evals_project_id_workflow_id_number"))

    op.drop_table("evals")
    with op.batch_alter_table("eval_runs", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_eval_runs_status_lease_until"))
        batch_op.drop_index(batch_op.f("ix_eval_runs_project_id_workflow_id_number"))
        batch_op.drop_index(batch_op.f("ix_eval_runs_project_id_number"))

    op.drop_table("eval_runs")
    with op.batch_alter_table("eval_revisions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_eval_revisions_eval_id"))

    op.drop_table("eval_revisions")
    with op.batch_alter_table("eval_results", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_eval_results_run_id_status_verdict"))
        batch_op.drop_index(batch_op.f("ix_eval_results_run_id_number"))
        batch_op.drop_index(batch_op.f("ix_eval_results_project_id_workflow_id_number"))
        batch_op.drop_index(batch_op.f("ix_eval_results_project_id_number"))
        batch_op.drop_index(batch_op.f("ix_eval_results_eval_id_number"))

    op.drop_table("eval_results")
    op.drop_table("projects")
    with op.batch_alter_table("audit_log", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_audit_log_project_id_number"))

    op.drop_table("audit_log")
