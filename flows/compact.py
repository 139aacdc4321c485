"""Bring the history up to date (`evalcore.prefect.compact`)."""

from evalcore.prefect.compact import compact_history

__all__ = ["compact_history"]
