"""Bring the history up to date (`evalcore.prefect.nightly`)."""

from evalcore.prefect.nightly import compact_history

__all__ = ["compact_history"]
