"""What is wrong with a pattern."""

from __future__ import annotations


class PatternError(ValueError):
    """A pattern is not valid in its dialect, or its search was stopped.

    `position` is the character of the pattern that is wrong (from 0), None if it is not one.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message, position)
        self.message = message
        self.position = position

    def __str__(self) -> str:
        if self.position is None:
            return self.message
        return f"{self.message} at position {self.position}"
