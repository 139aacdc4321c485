"""From an expression's text to the function that gives its value."""

from __future__ import annotations

import ast
import warnings
from typing import Final, NamedTuple

from evalcore.expressions.compiler import ExpressionCompiler
from evalcore.expressions.failure import ExpressionSyntaxError
from evalcore.expressions.frames import Run
from evalcore.expressions.nodes import NODES

_LONGEST: Final = 50_000


class Code(NamedTuple):
    """A compiled expression: its function, the steps it takes, the names it looks up."""

    run: Run
    cost: int
    names: frozenset[str]


def compile_expression(text: str) -> Code:
    """Compile one expression, which may be of several lines, as if in parentheses.

    Raises `ExpressionSyntaxError` with the position in `text`.
    """
    compiler = ExpressionCompiler(text, NODES)
    run = compiler.compile(_parse(text))
    return Code(run, compiler.cost, frozenset(compiler.names))


def _parse(text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise ExpressionSyntaxError(f"an expression has at most {_LONGEST} characters")
    try:
        # The brackets within the text are balanced: `scan.split` saw to that.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they name a file that does not exist
            tree = ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError as error:
        line, column = _position(error, text)
        message = (error.msg or "invalid syntax").removesuffix(". Perhaps you forgot a comma?")
        raise ExpressionSyntaxError(message, line, column) from None
    except ValueError as error:
        # Python's own limit for the digits of a literal speaks of its settings.
        large = "integer string conversion" in str(error)
        raise ExpressionSyntaxError("the integer is too large" if large else str(error)) from None
    except (MemoryError, RecursionError, OverflowError):
        raise ExpressionSyntaxError("the expression is too deeply nested") from None
    if isinstance(tree, ast.Tuple) and not tree.elts and tree.col_offset == 0:
        raise ExpressionSyntaxError("the expression is empty")
    return tree


def _position(error: SyntaxError, text: str) -> tuple[int, int]:
    """Return line and column within the text; its end, where the mistake is what is missing."""
    line, lines = error.lineno or 1, text.split("\n")
    if line > len(lines):
        return len(lines), len(lines[-1]) + 1
    return line, max(1, (error.offset or 1) - (line == 1))
