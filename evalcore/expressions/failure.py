"""What goes wrong with an expression: when its file is loaded, and when it is evaluated."""

from __future__ import annotations

from typing import Final

from evalcore.errors import EvalError
from evalcore.wording import one_line

LONGEST_SOURCE: Final = 160
_LONGEST_MESSAGE: Final = 400


class ExpressionSyntaxError(EvalError):
    """A text cannot be read as a template; for load errors.

    `line` and `column` count from 1 within the text that was given; `path` leads to that text
    where it stands in a larger value (`compile_tree`).
    """

    def __init__(
        self, message: str, line: int = 1, column: int = 1, path: tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(message, line, column, path)
        self.message = message
        self.line = line
        self.column = column
        self.path = path

    def __str__(self) -> str:
        position = f"column {self.column}"
        if self.line > 1:
            position = f"line {self.line}, {position}"
        return f"{self.message} ({position})"


class ExpressionError(EvalError):
    """An expression, a script or a pattern gave no value.

    `kind` is the name of the exception's class as Python has it ("ZeroDivisionError"), or
    "LimitError" where steps, memory or time ran out; `reason` is the message without the source.
    """

    def __init__(self, kind: str, reason: str, source: str = "") -> None:
        super().__init__(kind, reason, source)
        self.kind = kind
        self.reason = one_line(reason, _LONGEST_MESSAGE)
        self.source = source

    def __str__(self) -> str:
        source = f"{one_line(self.source, LONGEST_SOURCE)}: " if self.source else ""
        return f"{source}{self.kind}: {self.reason}"
