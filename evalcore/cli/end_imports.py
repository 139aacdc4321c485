"""What the end of a run needs, imported while its first items wait for their answers."""

from __future__ import annotations

from importlib import import_module
from typing import Final

_MODULES: Final = (
    "evalcore.sql.rows",
    "evalcore.cli.run_end",
    "evalcore.analytics.summarise",
    "evalcore.report.terminal",
)


def import_end() -> None:
    """Import what writes rows and reports."""
    for name in _MODULES:
        import_module(name)
