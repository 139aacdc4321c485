"""What the statements of one iteration run with, and how they fail."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evalcore.errors import KindError
from evalcore.expressions.engine import ExpressionError
from evalcore.model.exchange import Complete, ErrorKind, ProviderError, SkippedError, no_provider
from evalcore.trust.imports import ImportPolicy

if TYPE_CHECKING:
    from evalcore.providers.chat import ChatModel


EVERYTHING: Final = frozenset({"*", "all"})
_BY_KIND: Final[Mapping[str, str]] = {
    ErrorKind.TIMEOUT: "TimeoutError",
    ErrorKind.CONNECTION: "ConnectionError",
    ErrorKind.AUTHENTICATION: "PermissionError",
}
_NO_NAMES: Final = frozenset({"object", "BaseException"})


class ToolError(KindError):
    """A tool gave no result. `kind` is the class of exception that it is, for `catch`."""


def kind_of(error: BaseException) -> str:
    """Return the class of exception that a failure is, by its name."""
    if isinstance(error, ExpressionError | ToolError):
        return error.kind
    return type(_raised(error)).__name__


def names_of(error: BaseException) -> frozenset[str]:
    """Return every class name that the failure answers to: its own and those it derives from."""
    names = {base.__name__ for base in type(_raised(error)).__mro__}
    if isinstance(error, ToolError):
        names.add("ToolException")
    if isinstance(error, ExpressionError | ToolError | ProviderError):
        for name in filter(None, (str(error.kind), _BY_KIND.get(str(error.kind)))):
            names |= {name, *_bases(name)}
    return frozenset(names - _NO_NAMES)


def is_caught(error: BaseException, names: Iterable[str]) -> bool:
    """Whether `catch` names the failure; what a limit prevented is never caught."""
    if isinstance(error, SkippedError) or not isinstance(error, Exception):
        return False
    caught = frozenset(names)
    return bool(caught & EVERYTHING) or not caught.isdisjoint(names_of(error))


def _raised(error: BaseException) -> BaseException:
    """Return the exception of a function of the suite, of the error that reports it."""
    from evalcore.trust.imports import ForeignError

    if isinstance(error, ForeignError) and error.__cause__ is not None:
        return error.__cause__
    return error


def _bases(kind: str) -> tuple[str, ...]:
    """Return the names that one of Python's own exceptions, or pydantic's, answers to."""
    if kind == "ValidationError":
        return ("ValueError", "Exception")
    exception: Any = getattr(builtins, kind, None)
    if not (isinstance(exception, type) and issubclass(exception, BaseException)):
        return ("Exception",)
    return tuple(base.__name__ for base in exception.__mro__)


MOST_STATEMENTS: Final = 1_000_000
DEEPEST_CALL: Final = 40

Scope = dict[str, Any]


@dataclass(slots=True)
class Iteration:
    """One iteration: how it reaches the world, what it has done so far.

    `model` returns the model of a name, and raises `TargetError` if there is none; `call_server`
    calls a tool of an MCP server. `folder` is the suite's. `warnings` stand beside the score.
    `statements` counts what was run.
    """

    imports: ImportPolicy
    model: Callable[[str], ChatModel]
    call_server: Callable[[str, str, dict[str, Any]], Awaitable[Any]]
    complete: Complete = no_provider
    folder: Path = field(default_factory=Path.cwd)
    warnings: list[str] = field(default_factory=list)
    statements: int = 0

    def count(self) -> None:
        """Count a statement; raise `ToolError` if there were too many."""
        self.statements += 1
        if self.statements > MOST_STATEMENTS:
            raise ToolError("LimitError", f"more than {MOST_STATEMENTS} statements in an iteration")

    def warn(self, message: str) -> None:
        """Note a warning, each once."""
        if message not in self.warnings:
            self.warnings.append(message)

    def warn_of_unknown(self, tool: str, params: Iterable[str], known: Collection[str]) -> None:
        """Note the parameters of a call that the tool does not have."""
        for name in params:
            if name not in known:
                self.warn(f"tool '{tool}' has no parameter '{name}'; it is ignored")


class Tool:
    """A function that a statement calls by its name, and a model that may call it."""

    name: str
    description: str | None = None

    def waits(self, asked_tools: set[int]) -> bool:  # noqa: ARG002 - of a tool of statements
        """Whether a call may wait; `asked_tools` are the tools that are asked already."""
        return True

    def parameters(self) -> tuple[str, ...] | None:
        """Return the names of the parameters, in their order; None if any is taken."""
        return None

    def schema(self) -> dict[str, Any] | None:
        """Return the JSON Schema of the parameters, None where their names say all."""
        return None

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:
        """Return the result; raise what the tool raises. `scope` is the caller's."""
        raise NotImplementedError
