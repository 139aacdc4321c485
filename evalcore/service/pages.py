"""Pages of a list: newest first, with the ids of rows as cursors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from evalcore.service.database.rows import select_rows
from evalcore.service.failure import ServiceError
from evalcore.service.payloads import Payloads, ReadValue, StoredValue
from evalcore.service.wire.base import ListMetadata

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which rows: at most `limit`, older than the row `after` or newer than the row `before`."""

    limit: int = 20
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True, slots=True)
class RowPage:
    """The rows of a page and its cursors."""

    rows: Sequence[Any]
    metadata: ListMetadata
    backwards: bool = False

    def nearest(self, count: int) -> RowPage:
        """Return the page with so many rows only, those next to its cursor; the list goes on."""
        if count >= len(self.rows):
            return self
        if self.backwards:
            rows = self.rows[len(self.rows) - count :]
            metadata = ListMetadata(before=rows[0].id, after=self.metadata.after)
        else:
            rows = self.rows[:count]
            metadata = ListMetadata(before=self.metadata.before, after=rows[-1].id)
        return RowPage(rows, metadata, self.backwards)


async def read_values(
    payloads: Payloads, page: RowPage, stored_of: Callable[[Any], Sequence[StoredValue]]
) -> tuple[RowPage, list[list[ReadValue]]]:
    """Return a page with the values of each of its rows, without the rows that are too many.

    The rows that stay have `PAGE_BYTES` together, or it is one row.
    """
    rows = page.rows[::-1] if page.backwards else page.rows
    values = await payloads.read_rows([stored_of(row) for row in rows])
    return page.nearest(len(values)), values[::-1] if page.backwards else values


async def read_page(
    session: AsyncSession,
    table: Any,
    page: PageRequest,
    scope: Sequence[ColumnElement[bool]],
    where: Sequence[ColumnElement[bool]] = (),
) -> RowPage:
    """Return a page of a table's rows; two queries at most.

    A cursor is the id of a row in `scope`, which rows never leave; any other raises `ServiceError`
    400. It need not fit `where` any more: a run ends and an eval is deleted between two pages.
    """
    if page.before is not None and page.after is not None:
        raise ServiceError(400, "'before' and 'after' exclude each other")
    query = select_rows(table, *scope, *where)
    cursor = page.before or page.after
    if cursor is not None:
        edge = await session.scalar(select(table.number).where(table.id == cursor, *scope))
        if edge is None:
            raise ServiceError(400, f"the cursor '{cursor[:80]}' is not in this list")
        query = query.where(table.number > edge if page.before else table.number < edge)
    backwards = page.before is not None
    order = table.number.asc() if backwards else table.number.desc()
    rows = [*await session.execute(query.order_by(order).limit(page.limit + 1))]
    goes_on = len(rows) > page.limit
    rows = rows[: page.limit]
    if backwards:
        rows.reverse()
    has_newer = goes_on if backwards else page.after is not None
    has_older = True if backwards else goes_on
    metadata = ListMetadata(
        before=rows[0].id if rows and has_newer else None,
        after=rows[-1].id if rows and has_older else None,
    )
    return RowPage(rows, metadata, backwards)
