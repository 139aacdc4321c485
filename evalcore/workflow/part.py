"""The base of everything that a workflow file can write."""

from __future__ import annotations

from evalcore.declared.base import Declared


class WorkflowPart(Declared, alias_generator=None):
    """A mapping in a workflow file; its keys are written in snake_case only."""
