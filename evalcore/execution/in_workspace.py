"""A work item whose target works in a workspace."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from evalcore.errors import TargetError
from evalcore.execution.row import Finished
from evalcore.planning.expand import WorkItem
from evalcore.workspaces.manager import Workspace, Workspaces


def workspace_of(
    workspaces: Callable[[], Workspaces] | None, item: WorkItem
) -> AbstractAsyncContextManager[Workspace]:
    """Return the item's workspace, to be entered; raise `TargetError` where there is none."""
    if workspaces is None:
        raise TargetError("workspace", "no workspaces are prepared here")
    return workspaces().entered(item.case, f"{item.number}-{item.case.id}")


def noted(finished: Finished, workspace: Workspace) -> Finished:
    """Return the item with what its workspace's notes say in its evidence."""
    if not workspace.notes:
        return finished
    return finished._replace(evidence=workspace.told_by(finished.evidence))
