"""A text with `${…}`: its parts, its free names, its value in a scope."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from evalcore.expressions.budget import Budget, LimitError
from evalcore.expressions.expression import Code, compile_expression
from evalcore.expressions.failure import (
    LONGEST_SOURCE,
    ExpressionError,
    ExpressionSyntaxError,
)
from evalcore.expressions.scan import ExpressionSource, split
from evalcore.expressions.texts import to_text
from evalcore.expressions.values import EvaluationFailure, finish
from evalcore.wording import one_line

_CACHED: Final = 16_384


class _Expression:
    """One compiled expression and its text."""

    __slots__ = ("_cost", "_run", "source")

    def __init__(self, code: Code, source: str) -> None:
        self._run = code.run
        self._cost = code.cost
        self.source = source

    def value(self, scope: Mapping[str, Any], budget: Budget) -> Any:
        """Return the value; raise `ExpressionError` naming the expression."""
        try:
            budget.charge(self._cost)
            return finish(self._run([None, scope, budget]), budget)
        except Exception as error:  # noqa: BLE001 - operators of tools' own values run here
            raise self._named(error) from None

    def text(self, scope: Mapping[str, Any], budget: Budget) -> str:
        """Return the value as text."""
        value = self.value(scope, budget)
        try:
            return to_text(value, budget)
        except Exception as error:  # noqa: BLE001 - so does their `__str__`
            raise self._named(error) from None

    def _named(self, error: Exception) -> ExpressionError:
        source = f"${{{self.source}}}"
        if isinstance(error, EvaluationFailure):
            return ExpressionError(error.kind, error.message, source)
        if isinstance(error, RecursionError):
            return ExpressionError("RecursionError", "it is nested too deeply", source)
        if isinstance(error, MemoryError):
            return ExpressionError("LimitError", "there is not enough memory for it", source)
        kind = "LimitError" if isinstance(error, LimitError) else type(error).__name__
        try:
            reason = str(error)
        except Exception:  # noqa: BLE001 - a tool's own exception
            reason = "its exception has no text"
        return ExpressionError(kind, reason, source)


class ExpressionTemplate:
    """A text whose expressions are compiled."""

    __slots__ = ("_parts", "_single", "_text", "constant", "names")

    names: frozenset[str]
    """The names that the expressions look up in the scope."""
    constant: bool
    """Whether there is no expression in the text."""

    def __init__(self, parts: list[str | _Expression], names: frozenset[str]) -> None:
        self.names = names
        self._parts = parts
        self.constant = not any(isinstance(part, _Expression) for part in parts)
        self._text = "".join(part for part in parts if isinstance(part, str))
        first = parts[0] if parts else ""
        whole = len(parts) == 1 or (len(parts) == 2 and parts[1] in ("\n", "\r\n"))
        self._single = first if whole and isinstance(first, _Expression) else None

    def render(self, scope: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return the value: of the expression that is the whole text, otherwise a text.

        Raises `ExpressionError`. Without a budget each call has one of its own.
        """
        if self.constant:
            return self._text
        budget = budget or Budget()
        started = budget.start()
        try:
            if self._single is not None:
                return self._single.value(scope, budget)
            return self._joined(scope, budget)
        finally:
            budget.stop(started)

    def _joined(self, scope: Mapping[str, Any], budget: Budget) -> str:
        texts: list[str] = []
        for part in self._parts:
            texts.append(part if isinstance(part, str) else part.text(scope, budget))
        try:
            budget.room(sum(map(len, texts)))
        except LimitError as error:
            raise ExpressionError("LimitError", str(error), "the text") from None
        return "".join(texts)


@lru_cache(maxsize=_CACHED)
def compile_template(text: str) -> ExpressionTemplate:
    r"""Compile a text with `${…}` (`\${` stands for `${`); the same text is compiled once.

    Raises `ExpressionSyntaxError`.
    """
    parts: list[str | _Expression] = []
    names: set[str] = set()
    for part in split(text):
        if isinstance(part, str):
            parts.append(part)
            continue
        code = _compiled(part, text)
        names |= code.names
        parts.append(_Expression(code, part.text.strip()))
    return ExpressionTemplate(parts, frozenset(names))


def _compiled(part: ExpressionSource, text: str) -> Code:
    try:
        return compile_expression(part.text)
    except ExpressionSyntaxError as error:
        if error.line > 1:
            line, column = error.line, error.column
        else:
            line, column = 1, part.start - (text.rfind("\n", 0, part.start) + 1) + error.column
        line += text.count("\n", 0, part.start)
        message = f"{error.message}, in ${{{one_line(part.text, LONGEST_SOURCE)}}}"
        raise ExpressionSyntaxError(message, line, column) from None
