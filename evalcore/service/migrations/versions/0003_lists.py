"""Indices for each filter of the lists of runs and results: no list reads a whole project."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
_ADDED: dict[str, tuple[tuple[str, ...], ...]] = {
    "eval_results": (
        ("project_id", "eval_id", "number"),
        ("project_id", "block_id", "number"),
        ("project_id", "status", "number"),
        ("project_id", "trigger", "number"),
    ),
    "eval_runs": (
        ("project_id", "eval_id", "number"),
        ("project_id", "block_id", "number"),
        ("project_id", "status", "number"),
        ("project_id", "trigger", "number"),
    ),
}
# `project_id, eval_id, number` is used in its place.
_REPLACED: tuple[str, tuple[str, ...]] = ("eval_results", ("eval_id", "number"))


def upgrade() -> None:
    """Add the indices; those that exist stay as they are."""
    for table, indices in _ADDED.items():
        for columns in indices:
            op.create_index(_name(table, columns), table, columns, if_not_exists=True)
    table, columns = _REPLACED
    op.drop_index(_name(table, columns), table, if_exists=True)


def downgrade() -> None:
    """Restore the indices of `0002`."""
    table, columns = _REPLACED
    op.create_index(_name(table, columns), table, columns)
    for table, indices in _ADDED.items():
        for columns in indices:
            op.drop_index(_name(table, columns), table)


def _name(table: str, columns: tuple[str, ...]) -> str:
    return f"ix_{table}_{'_'.join(columns)}"
