"""What can carry out a planned run in place of this process: found by name, never imported."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol, cast

from evalcore.errors import EvalError, UsageError
from evalcore.pipeline.session import ExecuteOptions
from evalcore.storage.runs import StoredRun

GROUP = "evalcore.runners"


class RunnerAwayError(EvalError):
    """The orchestrator's server does not answer, or cannot take the run."""


class Stage(StrEnum):
    """How far a submitted run is: not begun by a worker, begun, ended, ended by a cancellation."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"


class Submission(NamedTuple):
    """What the orchestrator says of a submitted run; `reason` says how it ended."""

    stage: Stage
    reason: str = ""


class Runner(Protocol):
    """An orchestrator that executes and finishes a run that stands planned in its store."""

    def is_configured(self) -> bool:
        """Whether the environment names a server that runs can be submitted to."""

    def prepare(self, runner: str, processes: int | None = None) -> int:
        """Return for how many processes to plan a run whose shards this task runner executes.

        `processes` are those that were asked for. Raises `UsageError` if it cannot be used.
        """

    def connect(self) -> None:
        """Reach the orchestrator's server, before anything is planned; raise `UsageError`."""

    def start(
        self,
        run: StoredRun,
        options: ExecuteOptions,
        runner: str = "auto",
        processes: int | None = None,
    ) -> None:
        """Return when the run has its final state; raise `EvalError` if it cannot get there."""

    def cancel(self, run: StoredRun) -> None:
        """Ask for the run to be cancelled; committed rows stay."""

    def submit(self, run: StoredRun) -> None:
        """Ask the server's workers to execute the run; a run is submitted once, however often.

        Raises `RunnerAwayError`.
        """

    def submission(self, run: StoredRun) -> Submission:
        """Return how far a submitted run is. Raises `RunnerAwayError`."""

    def withdraw(self, run: StoredRun) -> bool:
        """Take back a run that no worker has begun; False if one has. Raises `RunnerAwayError`."""


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


def find_configured_runner() -> Runner | None:
    """Return the first installed runner, by name, that the environment names a server for."""
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        runner = cast("Runner", entry.load()())
        if runner.is_configured():
            return runner
    return None
