"""Whether a pooled connection to PostgreSQL still works: asked rarely, told at once."""

from __future__ import annotations

import time
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncEngine

_RESTED_S: Final = 5.0
_RETURNED_S: Final = "evalcore_returned_s"


def watch_liveness(engine: AsyncEngine) -> None:
    """Replace connections that the server has closed before they are used.

    The driver learns of a close by itself. A server that vanished without one is asked, in three
    round trips, only over connections that have rested for 5 s; SQLAlchemy's `pool_pre_ping` asks
    before each use.
    """
    event.listen(engine.sync_engine, "checkin", _note_return)
    event.listen(engine.sync_engine, "checkout", _refuse_dead)


def _note_return(_: Any, record: Any) -> None:
    record.info[_RETURNED_S] = time.monotonic()


def _refuse_dead(connection: Any, record: Any, _: Any) -> None:
    if connection.driver_connection.is_closed():
        raise InvalidatePoolError("the server has closed the connection")
    returned_s = record.info.get(_RETURNED_S)
    if returned_s is not None and time.monotonic() - returned_s > _RESTED_S:
        try:
            connection.ping()
        except Exception as error:
            # The driver raises errors of many types; a new connection is tried instead.
            raise InvalidatePoolError("the server does not answer") from error
