"""Any JSON value, each text in it a template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.failure import ExpressionSyntaxError
from evalcore.expressions.template import ExpressionTemplate, compile_template

_DEEPEST: Final = 200


class Tree:
    """A JSON value whose texts are compiled."""

    __slots__ = ("_value", "constant", "names")

    names: frozenset[str]
    """The names that the expressions look up in the scope."""
    constant: bool
    """Whether there is no expression in the value."""

    def __init__(self, value: Any, templates: list[ExpressionTemplate]) -> None:
        self._value = value
        self.names = frozenset[str]().union(*(template.names for template in templates))
        self.constant = all(template.constant for template in templates)

    def render(self, scope: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Return a new value, its lists and mappings copied; raise `ExpressionError`.

        What an expression gives is not copied: it may be a value of the scope itself.
        """
        value = self._value
        if type(value) is ExpressionTemplate:
            return value.render(scope, budget)
        return _rendered(value, scope, None if self.constant else budget or Budget())


def compile_tree(value: Any) -> Tree:
    """Compile every text in a JSON value; keys of mappings are taken as they stand.

    Raises `ExpressionSyntaxError`, whose `path` leads to the text within the value.
    """
    templates: list[ExpressionTemplate] = []
    return Tree(_compiled(value, (), templates), templates)


def _compiled(value: Any, path: tuple[str | int, ...], templates: list[ExpressionTemplate]) -> Any:
    """Return the value with a template in the place of every text that has an expression."""
    if len(path) > _DEEPEST:
        raise ExpressionSyntaxError("the value is nested too deeply", path=path[:3])
    if isinstance(value, str):
        try:
            template = compile_template(value)
        except ExpressionSyntaxError as error:
            raise ExpressionSyntaxError(error.message, error.line, error.column, path) from None
        if template.constant:
            return template.render({})
        templates.append(template)
        return template
    if isinstance(value, dict):
        return {key: _compiled(each, (*path, key), templates) for key, each in value.items()}
    if isinstance(value, list):
        return [_compiled(each, (*path, index), templates) for index, each in enumerate(value)]
    return value


def _rendered(value: Any, scope: Mapping[str, Any], budget: Budget | None) -> Any:
    kind = type(value)
    if kind is ExpressionTemplate:
        return value.render(scope, budget)
    if kind is dict:
        return {key: _rendered(each, scope, budget) for key, each in value.items()}
    if kind is list:
        return [_rendered(each, scope, budget) for each in value]
    return value
