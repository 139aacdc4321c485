"""Where the expressions of a text with `${…}` begin and end."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from evalcore.expressions.failure import ExpressionSyntaxError

_OPENING: Final = re.compile(r"\\?\$\{")
# What matters between `${` and its `}`: brackets, comments and the quotes of literals.
_MARK: Final = re.compile(r"[()\[\]{}#]|'''|\"\"\"|'|\"")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_QUOTE_OR_END: Final = {
    quote: re.compile(rf"\\.|{quote}" if len(quote) == 3 else rf"\\.|{quote}|\n", re.DOTALL)
    for quote in ("'", '"', "'''", '"""')
}
_DEEPEST: Final = 90


class ExpressionSource(NamedTuple):
    """An expression's text and where it starts in the whole."""

    text: str
    start: int


def split(text: str) -> list[str | ExpressionSource]:
    r"""Return the parts of a text in their order: `\${` becomes `${`, no part is empty.

    Raises `ExpressionSyntaxError` for an expression that does not end.
    """
    if "${" not in text:
        return [text] if text else []
    parts: list[str | ExpressionSource] = []
    literal, position = "", 0
    while (match := _OPENING.search(text, position)) is not None:
        literal += text[position : match.start()]
        position = match.end()
        if match[0].startswith("\\"):
            literal += "${"
            continue
        end = _end(text, position)
        if literal:
            parts.append(literal)
            literal = ""
        parts.append(ExpressionSource(text[position:end], position))
        position = end + 1
    literal += text[position:]
    if literal:
        parts.append(literal)
    return parts


def _end(text: str, start: int) -> int:
    """Return the index of the `}` that closes the expression that starts at `start`."""
    open_brackets: list[str] = []
    position = start
    while (mark := _MARK.search(text, position)) is not None:
        sign = mark[0]
        position = mark.end()
        if sign in _CLOSING:
            open_brackets.append(_CLOSING[sign])
            if len(open_brackets) > _DEEPEST:
                raise mistake(text, mark.start(), "brackets are nested too deeply")
        elif sign in ")]}":
            if not open_brackets and sign == "}":
                return mark.start()
            if not open_brackets or open_brackets.pop() != sign:
                raise mistake(text, mark.start(), f"'{sign}' closes nothing")
        elif sign == "#":
            newline = text.find("\n", position)
            position = len(text) if newline < 0 else newline
        else:
            position = _after_literal(text, position, sign)
    raise mistake(
        text, start - 2, "'${' is never closed; for the characters themselves write '\\${'"
    )


def _after_literal(text: str, position: int, quote: str) -> int:
    """Return the index after a literal whose first quote has been read."""
    start = position - len(quote)
    while (match := _QUOTE_OR_END[quote].search(text, position)) is not None:
        position = match.end()
        if match[0] == quote:
            return position
        if match[0] == "\n":
            break
    raise mistake(text, start, "a text literal is never closed")


def mistake(text: str, index: int, message: str) -> ExpressionSyntaxError:
    """Return the error for what stands at an index of the text."""
    line = text.count("\n", 0, index) + 1
    return ExpressionSyntaxError(message, line, index - (text.rfind("\n", 0, index) + 1) + 1)
