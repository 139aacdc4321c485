"""How often a run was begun, the engine's run before it is planned, and what is left to cancel."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
_INDEX = "ix_eval_runs_cancel_requested"


def upgrade() -> None:
    """Add the columns and the index; runs that were cancelled before have nothing left to do."""
    for table in ("eval_runs", "workflow_runs"):
        op.add_column(
            table, sa.Column("attempts", sa.Integer(), nullable=False, server_default="0")
        )
        op.add_column(table, sa.Column("planning_run", sa.String(length=100), nullable=True))
    op.execute("UPDATE eval_runs SET cancel_requested = false WHERE cancel_requested")
    op.create_index(_INDEX, "eval_runs", ["cancel_requested"])


def downgrade() -> None:
    """Remove what `upgrade` adds."""
    op.drop_index(_INDEX, "eval_runs")
    for table in ("eval_runs", "workflow_runs"):
        with op.batch_alter_table(table, schema=None) as batch_op:
            batch_op.drop_column("planning_run")
            batch_op.drop_column("attempts")
