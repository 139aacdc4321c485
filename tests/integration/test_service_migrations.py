"""Databases of earlier versions, with rows in them, get the present tables."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from click.testing import CliRunner
from sqlalchemy import Connection, text

from evalcore.cli.main import cli
from evalcore.service.db import Database, alembic_config, open_database, upgrade
from evalcore.service.tables import Table

_NOW = datetime(2026, 11, 1, tzinfo=UTC)
# Rows as version 0001 stored them: columns that came later are not named.
_ROWS: dict[str, dict[str, Any]] = {
    "projects": {"id": "proj_1", "name": "default", "created_at": _NOW},
    "eval_runs": {
        "id": "wfevalrun_1",
        "project_id": "proj_1",
        "created_at": _NOW,
        "workflow_id": "wf_1",
        "version_id": "draft_1",
        "trigger": "api",
        "total_evals": 1,
        "status": "cancelled",
        "cancel_requested": True,
    },
    "eval_results": {
        "id": "wfresult_1",
        "project_id": "proj_1",
        "created_at": _NOW,
        "run_id": "wfevalrun_1",
        "eval_id": "wfnodeeval_1",
        "revision_id": "rev_1",
        "workflow_id": "wf_1",
        "block_id": "extract",
        "trigger": "api",
        "status": "cancelled",
    },
}


@pytest.mark.parametrize("version", ["0001", "0002"])
def test_a_database_with_rows_is_upgraded_and_keeps_them(database: str, version: str) -> None:
    asyncio.run(_store_rows(database, version))
    for _ in range(2):  # the second time there is nothing to do
        ended = CliRunner().invoke(cli, ["serve", "--database", database, "migrate"])
        assert ended.exit_code == 0, ended.output
    rows, differences = asyncio.run(_upgraded(database))
    assert rows == {name: row["id"] for name, row in _ROWS.items()}
    assert differences == []


async def _store_rows(address: str, version: str) -> None:
    database = open_database(address)
    async with database.engine.begin() as connection:
        await connection.run_sync(_upgrade_to, version)
        for table, row in _ROWS.items():
            names, values = ", ".join(f'"{name}"' for name in row), ", ".join(f":{n}" for n in row)
            await connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)
    await database.close()


def _upgrade_to(connection: Connection, version: str) -> None:
    config = alembic_config()
    config.attributes["connection"] = connection
    command.upgrade(config, version)


async def _upgraded(address: str) -> tuple[dict[str, str], list[Any]]:
    """Return the ids of the rows, and how the tables differ from those of the code."""
    database: Database = open_database(address)
    await upgrade(database)
    async with database.engine.begin() as connection:
        rows = {
            table: str((await connection.execute(text(f"SELECT id FROM {table}"))).scalar_one())
            for table in _ROWS
        }
        differences = await connection.run_sync(_differences)
    await database.close()
    return rows, differences


def _differences(connection: Connection) -> list[Any]:
    return list(compare_metadata(MigrationContext.configure(connection), Table.metadata))
