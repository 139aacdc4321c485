"""The texts of the named queries in `queries/`."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

QUERIES = Path(__file__).parent / "queries"


@lru_cache(maxsize=64)
def query_text(name: str) -> str:
    """Return the text of a named query."""
    return (QUERIES / f"{name}.sql").read_text("utf-8")
