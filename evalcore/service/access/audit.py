"""The audit log: one row for each write, also for one that was refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from evalcore.service.access.tokens import Caller
from evalcore.service.database.sessions import Database
from evalcore.service.database.tables import AuditRow

if TYPE_CHECKING:
    from fastapi import Request

_ID: Final = re.compile(r"/([a-z]+_[A-Za-z0-9]{22})(?=/|$)")


async def note_write(database: Database, caller: Caller, request: Request, status: int) -> None:
    """Note who asked for what, and the status that the answer has."""
    path = request.url.path
    named = _ID.search(path)
    async with database.transaction() as session:
        session.add(
            AuditRow(
                project_id=caller.project_id,
                token_id=caller.token_id,
                at=datetime.now(UTC),
                method=request.method,
                path=path[:2000],
                status=status,
                resource_id=named[1] if named else None,
            )
        )
