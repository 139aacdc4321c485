"""A text with `${…}`: its parts, its free names, its value in a scope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.expressions.budget import Budget


class Template:
    """A text whose expressions are compiled."""

    names: frozenset[str]
    """The names that the expressions look up in the scope."""
    constant: bool
    """Whether there is no expression in the text."""

    def render(self, scope: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return the value: of the expression that is the whole text, otherwise a text.

        Raises `ExpressionError`. Without a budget each call has one of its own.
        """
        raise NotImplementedError


def compile_template(text: str) -> Template:
    r"""Compile a text with `${…}` (`\${` stands for `${`); the same text is compiled once.

    Raises `ExpressionSyntaxError`.
    """
    raise NotImplementedError
