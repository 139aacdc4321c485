"""Values that people judge in a test of a script suite: expressions after its statements."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from evalcore.expressions.failure import ExpressionError
from evalcore.expressions.tree import Tree, compile_tree
from evalcore.scripts.iteration import Scope
from evalcore.scripts.score import text_of

TEXT: Final = "text"
ERROR: Final = "error"


@lru_cache(maxsize=256)
def compile_judged(written: str) -> Tree:
    """Return the template that `of` means; a text without `${` is an expression itself.

    Raises `ExpressionSyntaxError`.
    """
    return compile_tree(written if "${" in written else f"${{{written}}}")


def judged_values(expressions: Iterable[str], scope: Scope) -> dict[str, dict[str, str]]:
    """Return by expression `{text}`, or `{error}` where it has no value in the scope."""
    values = {}
    for written in expressions:
        try:
            values[written] = {TEXT: text_of(compile_judged(written).render(scope))}
        except ExpressionError as error:
            values[written] = {ERROR: str(error)}
    return values
