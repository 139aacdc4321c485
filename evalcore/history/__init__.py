"""The history of a store: each ended run as rows of four tables of Parquet, read through DuckDB.

`evalcore.history(store)` opens it (`history.query.History`): the package can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    """The package, which opens a store's history when it is called."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from evalcore.history.query import History

        return History(*arguments, **options)


# A submodule of the name `history` is an attribute of `evalcore` as soon as it is imported, in
# place of any function of that name.
sys.modules[__name__].__class__ = _CallableModule
