"""Bring a database to the present form of its tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from evalcore.errors import UsageError
from evalcore.service.database.outages import naming_outages

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from evalcore.service.database.sessions import Database

_FOLDER: Final = Path(__file__).parent / "migrations"
# Any number: replicas that start at once migrate one after another.
_LOCK: Final = 7_318_204_517


async def upgrade(database: Database) -> None:
    """Apply the migrations that are missing; safe to call from several replicas at once.

    Raises `UsageError` if a newer version of evalcore has migrated the database, and
    `DatabaseOutageError`.
    """
    with naming_outages():
        async with database.engine.begin() as connection:
            if database.is_postgresql:
                await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            await connection.run_sync(_upgrade)


def _upgrade(connection: Connection) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    current = MigrationContext.configure(connection).get_current_revision()
    revisions = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if current is not None and current not in revisions:
        raise UsageError(
            f"the database has the revision '{current}', which this version of evalcore does not "
            "know: start the version that migrated it, or a newer one"
        )
    command.upgrade(config, "head")


def alembic_config() -> Config:
    """Return Alembic's configuration for the migrations of this package."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    return config
