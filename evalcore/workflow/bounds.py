"""How often a block is tried, and what it and its workflow may take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from evalcore.declared.types import Count, Listed, Seconds, Weight
from evalcore.workflow.part import WorkflowPart


class Retry(WorkflowPart):
    """How often a block is tried; seconds."""

    max_attempts: Annotated[int, Field(ge=1, le=20)] = 3
    backoff: Literal["fixed", "exponential"] = "fixed"
    backoff_base_seconds: Annotated[float, Field(ge=0, le=60)] = 1.0
    non_retryable_errors: Listed[str] | None = None

    def wait_s(self, attempt: int) -> float:
        """Return the seconds between attempt `attempt` (from 1) and the next one."""
        exponential = self.backoff == "exponential"
        return self.backoff_base_seconds * (2 ** (attempt - 1) if exponential else 1)


class Caps(WorkflowPart):
    """Bounds of a block or a workflow; `on_exceed: warn` records an event and goes on."""

    max_duration_seconds: Seconds | None = None
    cost_cap_usd: Weight | None = None
    token_cap: Count | None = None
    on_exceed: Literal["warn", "fail"] = "fail"
    warn_at_pct: float | None = None

    @property
    def warns(self) -> bool:
        """Whether a passed bound is only recorded."""
        return self.on_exceed == "warn"
