"""How a statement fails, and by which names `catch` knows it."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any, Final

from evalcore.errors import KindError
from evalcore.expressions.failure import ExpressionError
from evalcore.model.exchange import ErrorKind, ProviderError, SkippedError

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
    if isinstance(error, ExpressionError | ToolError):
        names |= {error.kind, *_bases(error.kind)}
    if isinstance(error, ToolError):
        names.add("ToolException")
    if isinstance(error, ProviderError):
        names.add(str(error.kind))
        name = _BY_KIND.get(str(error.kind))
        if name is not None:
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
    from evalcore.trust.calls import ForeignError

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
