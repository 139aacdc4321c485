"""Alembic's entry: migrate on the connection that `migrate.upgrade` opened."""

from __future__ import annotations

from alembic import context

from evalcore.service.tables import Table

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Table.metadata,
    render_as_batch=True,
)
context.run_migrations()
