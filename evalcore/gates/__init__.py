"""DECIDE: gates over aggregates; pure, no I/O.

`from evalcore import gates` gives this package with the names of `gates.table`, which is loaded
when the first of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalcore.gates.gate import Gate as Gate
    from evalcore.gates.table import *  # noqa: F403  (its rows)
else:

    def __getattr__(name: str) -> Any:
        if not name.startswith("_"):
            module = import_module(f"evalcore.gates.{'gate' if name == 'Gate' else 'table'}")
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module 'evalcore.gates' has no attribute {name!r}")
