"""What can carry out a planned run in place of this process: found by name, never imported."""

from __future__ import annotations

from typing import Protocol, cast

from evalcore.errors import UsageError
from evalcore.pipeline import ExecuteOptions
from evalcore.storage.runs import StoredRun

GROUP = "evalcore.runners"


class Runner(Protocol):
    """An orchestrator that executes and finishes a run that stands planned in its store."""

    def start(self, run: StoredRun, options: ExecuteOptions) -> None:
        """Return when the run has its final state; raise `EvalError` if it cannot get there."""

    def cancel(self, run: StoredRun) -> None:
        """Ask for the run to be cancelled; committed rows stay."""


def find_runner(name: str) -> Runner:
    """Return the runner that an installed package offers under `name`; raise `UsageError`."""
    # Reading every installed package's entry points takes longer than a small run.
    from importlib.metadata import entry_points

    entries = entry_points(group=GROUP)
    for entry in entries:
        if entry.name == name:
            return cast("Runner", entry.load()())
    names = ", ".join(sorted(entry.name for entry in entries)) or "none is installed"
    raise UsageError(f"no runner '{name}' ({names})")
