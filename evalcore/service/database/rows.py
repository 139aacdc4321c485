"""Rows as they are read: without the session's bookkeeping, which costs as much as the query."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Select, bindparam, select
from sqlalchemy.ext.asyncio import AsyncSession

Row = TypeVar("Row")


def select_rows(table: Any, *where: ColumnElement[bool]) -> Select[Any]:
    """Return the query of all columns of a table; a row has them as attributes."""
    return select(table.__table__).where(*where)


async def read_by_ids(
    session: AsyncSession,
    table: type[Row],
    identifiers: Collection[str],
    project_id: str,
    leave_out: tuple[str, ...] = (),
) -> dict[str, Row]:
    """Return the rows of a project with these ids, without the columns `leave_out`.

    Changing a row changes nothing in the database. No ids are no query.
    """
    if not identifiers:
        return {}
    bound = {"ids": sorted(set(identifiers)), "project_id": project_id}
    rows = await session.execute(_of_ids(cast("Any", table), leave_out), bound)
    return {row.id: cast("Row", row) for row in rows}


async def read_owned(
    session: AsyncSession, table: type[Row], identifier: str, project_id: str
) -> Row | None:
    """Return the row of a project with this id, or None; changing it changes nothing."""
    bound = {"id": identifier, "project_id": project_id}
    rows = await session.execute(_owned(cast("Any", table)), bound)
    return cast("Row | None", rows.first())


async def lock_owned(
    session: AsyncSession, table: Any, identifier: str, project_id: str
) -> Any | None:
    """Return the row of a project with this id, to be changed, or None."""
    return await session.scalar(
        select(table)
        .where(table.id == identifier, table.project_id == project_id)
        .with_for_update()
    )


# Building a query costs as much as a third of executing it.
@cache
def _of_ids(table: Any, leave_out: tuple[str, ...]) -> Select[Any]:
    columns = table.__table__.columns
    return select(*(column for column in columns if column.name not in leave_out)).where(
        columns.id.in_(bindparam("ids", expanding=True)),
        columns.project_id == bindparam("project_id"),
    )


@cache
def _owned(table: Any) -> Select[Any]:
    columns = table.__table__.columns
    return select(table.__table__).where(
        columns.id == bindparam("id"), columns.project_id == bindparam("project_id")
    )
