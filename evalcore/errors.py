"""What can go wrong, and which exit code says so.

One tree under `EvalError`. Each error says where, what, and what would work, and survives pickling
(workers hand them across processes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple


class ExitCode(IntEnum):
    """Exit codes of the command line (docs/reference/command-line.md)."""

    PASS = 0
    GATE_FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    ERRORS = 4


class Problem(NamedTuple):
    """One mistake in a file: its position and what is wrong."""

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        position = self.file if self.line is None else f"{self.file}:{self.line}"
        return (
            f"{position}: {self.path}: {self.message}"
            if self.path
            else f"{position}: {self.message}"
        )


class EvalError(Exception):
    """The root: a message for a person and the exit code that goes with it."""

    exit_code = ExitCode.USAGE


class LoadError(EvalError):
    """A suite does not load. `problems` holds every mistake found, in file order."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class UsageError(EvalError):
    """The command line or the call asks for something that cannot be."""


class NoCaseLeftError(UsageError):
    """The caller's filters leave no case of a suite; `reasons` say why."""

    def __init__(self, suite: str, reasons: Sequence[str]) -> None:
        super().__init__("\n".join(f"{suite}: {reason}" for reason in reasons))
        self.suite = suite
        self.reasons = tuple(reasons)

    @property
    def warning(self) -> str:
        """What is said where the suite is left out beside others."""
        return f"left out: {' '.join(self.reasons)}"


class SettingsError(EvalError):
    """The configuration (environment, evalcore.toml) is wrong."""


class NotAllowedError(EvalError):
    """The suite asks for something that trust does not grant (imports, files, variables)."""


class StoreError(EvalError):
    """The object store did not do what was asked; `exit_code` 4, nothing stored is lost.

    `under_item`: it failed while an item ran, whose calls would be made again.
    """

    exit_code = ExitCode.ERRORS
    under_item = False


class MemoryLimitError(EvalError):
    """The machine has too little memory for what is asked; nothing stored is lost."""

    exit_code = ExitCode.ERRORS


class Damage(NamedTuple):
    """One part of a stored run that does not fit the rest.

    `shard` is the shard whose items can be executed again to mend it; None if nothing can be
    derived from what is left (a manifest, a plan).
    """

    part: str
    reason: str
    shard: int | None = None

    def __str__(self) -> str:
        return f"{self.part} {self.reason}"


_LISTED_DAMAGES = 5


class DamagedRunError(EvalError):
    """A stored run does not add up: final, no retry and no other worker makes it better.

    `damages` holds every place that was looked at and does not fit, in the order of the plan.
    """

    exit_code = ExitCode.ERRORS

    def __init__(self, run_id: str, damages: tuple[Damage, ...]) -> None:
        super().__init__(run_id, damages)
        self.run_id = run_id
        self.damages = damages

    @property
    def repairable(self) -> bool:
        """Whether executing shards again mends all of it."""
        return all(damage.shard is not None for damage in self.damages)

    def __str__(self) -> str:
        listed = "; ".join(map(str, self.damages[:_LISTED_DAMAGES]))
        if (left := len(self.damages) - _LISTED_DAMAGES) > 0:
            listed = f"{listed}; and {left} more"
        return f"run {self.run_id} is damaged: {listed}; {self.remedy}"

    @property
    def remedy(self) -> str:
        """What would work."""
        if self.repairable:
            return f"`evalcore runs verify {self.run_id} --repair` executes those shards again"
        return "restore it from a copy of the store, or run the suite again"


class _RunError(EvalError):
    """An error that the id of a run says all of."""

    exit_code = ExitCode.ERRORS

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


class UnplannedRunError(_RunError):
    """A run whose planning was stopped: it executed nothing, so nothing of it is lost."""

    def __str__(self) -> str:
        return (
            f"run {self.run_id} was stopped before it was planned and has executed nothing; "
            "run the suite again"
        )


class ResultsDroppedError(_RunError):
    """The results of a run were dropped by compaction; the history has its rows."""

    def __str__(self) -> str:
        return (
            f"the raw results of run {self.run_id} were dropped by `evalcore compact`; its scores "
            "are in the history (`evalcore query`), its report is report.json beside its manifest"
        )


class WorkersFailedError(EvalError):
    """The workers of a run cannot end it, for the reason given.

    If it is `resumable` the message says how, unless the reason does.
    """

    exit_code = ExitCode.ERRORS

    def __init__(self, run_id: str, reason: str, resumable: bool = True) -> None:
        super().__init__(run_id, reason, resumable)
        self.run_id = run_id
        self.reason = reason
        self.resumable = resumable

    def __str__(self) -> str:
        if not self.resumable:
            return self.reason
        return f"{self.reason}; go on with: evalcore run --resume {self.run_id}"


class ObjectNotFoundError(StoreError):
    """No object stands at that key."""


class RunGoneError(ObjectNotFoundError):
    """The manifest of a run that is being worked on is no longer in the store."""

    def __init__(self, run_id: str, url: str) -> None:
        super().__init__(run_id, url)
        self.run_id = run_id
        self.url = url

    def __str__(self) -> str:
        return (
            f"run {self.run_id} is no longer in {self.url}: its manifest was deleted, or the store "
            "is another one now; bring it back and resume the run, or run the suite again"
        )


class RunNotFoundError(EvalError):
    """No run of that id is in the store."""


class RunConflictError(EvalError):
    """Two writers changed the same run; the store kept the first one's word."""

    exit_code = ExitCode.ERRORS


class KindError(EvalError):
    """An error that is told from others by its `kind`, and reads as its `message`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return self.message


class TargetError(KindError):
    """A target gave no output: the item ends in lifecycle `error` with this kind and message."""

    exit_code = ExitCode.ERRORS


@contextmanager
def resumable(run_id: str) -> Iterator[None]:
    """Let what ends a run that was planned, a store that is away above all, say how it goes on."""
    try:
        yield
    except (DamagedRunError, RunConflictError, _RunError):  # they say what would work
        raise
    except EvalError as error:
        if error.exit_code is not ExitCode.ERRORS or "--resume" in str(error):
            raise
        raise WorkersFailedError(run_id, str(error)) from error
