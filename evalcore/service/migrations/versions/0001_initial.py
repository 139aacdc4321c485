"""The tables of the first version.

Nothing is released yet, so they are those of `tables`; the first migration after a release writes
them out here.
"""

from __future__ import annotations

from alembic import op

from evalcore.service.tables import Table

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    Table.metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop all tables."""
    Table.metadata.drop_all(op.get_bind())
