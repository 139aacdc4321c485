"""What can go wrong, and which exit code says so.

One tree under `EvalError`. Each error says where, what, and what would work, and survives pickling
(workers hand them across processes).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ExitCode(IntEnum):
    """Exit codes of the command line (spec/engine.md)."""

    PASS = 0
    GATE_FAILED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    ERRORS = 4


class Problem(NamedTuple):
    """One mistake in somebody's file: where it stands and what is wrong with it."""

    file: str
    line: int | None
    path: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.path}: {self.message}" if self.path else f"{place}: {self.message}"


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


class SettingsError(EvalError):
    """The configuration (environment, evalcore.toml) is wrong."""


class NotAllowedError(EvalError):
    """The suite asks for something that trust does not grant (imports, files, variables)."""


class StoreError(EvalError):
    """The object store did not do what was asked; `exit_code` 4, nothing stored is lost."""

    exit_code = ExitCode.ERRORS


class MemoryLimitError(EvalError):
    """The machine has too little memory for what is asked; nothing stored is lost."""

    exit_code = ExitCode.ERRORS


class ObjectNotFoundError(StoreError):
    """No object stands at that key."""


class RunNotFoundError(EvalError):
    """No run of that id is in the store."""


class RunConflictError(EvalError):
    """Two writers changed the same run; the store kept the first one's word."""

    exit_code = ExitCode.ERRORS


class TargetError(EvalError):
    """A target gave no output: the item ends in lifecycle `error` with this kind and message."""

    exit_code = ExitCode.ERRORS

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return self.message
