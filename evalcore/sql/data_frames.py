"""Relations as pandas DataFrames, for notebooks."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from evalcore.errors import UsageError

if TYPE_CHECKING:
    from _duckdb import DuckDBPyRelation


def data_frame(relation: DuckDBPyRelation) -> Any:
    """Return the relation as a pandas DataFrame; raise `UsageError` if pandas is not installed."""
    if find_spec("pandas") is None:
        raise UsageError("a DataFrame needs pandas: pip install 'evalcore-pipeline[notebook]'")
    return relation.df()
