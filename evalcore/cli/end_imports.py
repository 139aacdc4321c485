"""What the end of a run needs, prepared while its first items wait for their answers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Final

_MODULES: Final = (
    "evalcore.sql.rows",
    "evalcore.cli.run_end",
    "evalcore.analytics.summarise",
    "evalcore.report.terminal",
)


def prepare_end() -> Iterator[None]:
    """Import what writes rows and reports, and open the database; each in a step of its own."""
    for name in _MODULES:
        import_module(name)
        yield
    from evalcore.sql.connection import connect

    connect()
    yield
