"""The migrations make the tables of the code, and say so of a database of another version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text

from evalcore.errors import UsageError
from evalcore.service.db import open_database, upgrade
from evalcore.service.tables import Table


def test_the_migrations_make_the_tables_of_the_code(database: str) -> None:
    for _ in range(2):  # the second time there is nothing to do
        asyncio.run(_upgrade(database))
    assert asyncio.run(_with_connection(database, _differences)) == []


def test_a_database_of_a_newer_version_is_not_touched(database: str) -> None:
    asyncio.run(_upgrade(database))
    asyncio.run(_with_connection(database, _newer))
    with pytest.raises(UsageError, match="the database has the revision '9999'"):
        asyncio.run(_upgrade(database))


async def _upgrade(address: str) -> None:
    database = open_database(address)
    try:
        await upgrade(database)
    finally:
        await database.close()


async def _with_connection(address: str, call: Any) -> Any:
    database = open_database(address)
    async with database.engine.begin() as connection:
        result = await connection.run_sync(call)
    await database.close()
    return result


def _differences(connection: Connection) -> list[Any]:
    return list(compare_metadata(MigrationContext.configure(connection), Table.metadata))


def _newer(connection: Connection) -> None:
    connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
