"""Any JSON value, each text in it a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.expressions.budget import Budget


class Tree:
    """A JSON value whose texts are compiled."""

    names: frozenset[str]
    """The names that the expressions look up in the scope."""
    constant: bool
    """Whether there is no expression in the value."""

    def render(self, scope: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return a new value, its lists and mappings copied; raise `ExpressionError`."""
        raise NotImplementedError


def compile_tree(value: Any) -> Tree:
    """Compile every text in a JSON value; keys of mappings are taken as they stand.

    Raises `ExpressionSyntaxError` naming the place in the value.
    """
    raise NotImplementedError
