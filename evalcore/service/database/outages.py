"""Which errors of a database pass by themselves, so that trying again later can help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from evalcore.errors import EvalError, ExitCode

# Classes of SQLSTATE: connection, rejected login, missing database, deadlock and serialization,
# resources, intervention by the operator (a restart), system error.
_PASSING: Final = frozenset({"08", "28", "3D", "40", "53", "57", "58"})


class DatabaseOutageError(EvalError):
    """The database does not answer; nothing that was committed is lost."""

    exit_code = ExitCode.ERRORS


@contextmanager
def naming_outages() -> Iterator[None]:
    """Raise `DatabaseOutageError` for what the database raises while it is away."""
    try:
        yield
    except Exception as error:
        # Drivers raise errors of many types; what is no outage goes on as it is.
        if not is_outage(error):
            raise
        reason = str(error.orig if isinstance(error, DBAPIError) else error).splitlines()
        text = reason[0] if reason else type(error).__name__
        raise DatabaseOutageError(f"the database does not answer: {text}") from error


def is_outage(error: Exception) -> bool:
    """Whether an error says that the database is away, and not that a statement is wrong."""
    if isinstance(error, OperationalError | InterfaceError | PoolTimeoutError | OSError):
        return True
    # asyncpg raises its own errors while it connects; SQLAlchemy wraps the later ones.
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    cause = error.orig if isinstance(error, DBAPIError) else error
    return str(getattr(cause, "sqlstate", None) or "")[:2] in _PASSING
