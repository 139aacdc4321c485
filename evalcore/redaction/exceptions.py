"""Exceptions that leave the engine: message, cause, context and notes without secrets."""

from __future__ import annotations

from evalcore.redaction.redactor import PROCESS

_MOST = 50


def cover_exception(error: BaseException) -> None:
    """Take secrets out of an exception and of those that it comes from, in place."""
    waiting: list[BaseException | None] = [error]
    covered: set[int] = set()
    while waiting and len(covered) < _MOST:
        current = waiting.pop()
        if current is None or id(current) in covered:
            continue
        covered.add(id(current))
        _cover(current)
        waiting += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def _cover(error: BaseException) -> None:
    error.args = tuple(
        PROCESS.message(value) if isinstance(value, str) else value for value in error.args
    )
    for name in ("message", "__notes__"):
        value = error.__dict__.get(name)
        if isinstance(value, str):
            error.__dict__[name] = PROCESS.message(value)
        elif isinstance(value, list):
            error.__dict__[name] = [PROCESS.message(str(note)) for note in value]
