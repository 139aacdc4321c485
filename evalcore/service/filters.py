"""The filters of lists of runs and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs or results: all that are named have to hold."""

    workflow_id: str | None = None
    eval_id: str | None = None
    target_block_id: str | None = None
    status: Sequence[str] | None = None
    exclude_status: Sequence[str] | None = None
    trigger_type: str | None = None
    from_date: datetime | None = None
    to_date: datetime | None = None

    def lasting_conditions(self, table: Any) -> list[ColumnElement[bool]]:
        """Return the conditions that a run or result meets for good or never; both dates count."""
        named = {
            table.workflow_id: self.workflow_id,
            table.eval_id: self.eval_id,
            table.block_id: self.target_block_id,
            table.trigger: self.trigger_type,
        }
        where = [column == value for column, value in named.items() if value is not None]
        if self.from_date is not None:
            where.append(table.created_at >= self.from_date)
        if self.to_date is not None:
            where.append(table.created_at <= self.to_date)
        return where

    def status_conditions(self, table: Any) -> list[ColumnElement[bool]]:
        """Return the conditions on the status, which changes."""
        where: list[ColumnElement[bool]] = []
        if self.status:
            where.append(table.status.in_(self.status))
        if self.exclude_status:
            where.append(table.status.not_in(self.exclude_status))
        return where
