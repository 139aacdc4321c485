"""What the end of a run needs, imported while its first items wait for their answers."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

_MODULES: Final = (
    "evalcore.sql.rows",
    "evalcore.cli.run_end",
    "evalcore.analytics.summarise",
    "evalcore.report.terminal",
)


def import_end() -> None:
    """Import what settles calls, writes rows and reports.

    Harmless at any moment: modules that are imported already cost nothing.
    """
    if "evalcore.providers.transport" in sys.modules:  # models are asked, so calls are priced
        from evalcore.providers.prices import load_prices

        load_prices()
    for name in _MODULES:
        import_module(name)
