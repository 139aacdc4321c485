"""A text with `${…}`, and JSON values whose texts are such: their parts, and their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from evalcore.expressions.engine import (
    BYTES,
    LONGEST_SOURCE,
    Code,
    ExpressionError,
    ExpressionSyntaxError,
    compile_expression,
    to_text,
)
from evalcore.expressions.limits import value_of
from evalcore.wording import one_line

_CACHED: Final = 16_384
_OPENING: Final = re.compile(r"\\?\$\{")
# What matters between `${` and its `}`: brackets, comments and the quotes of literals.
_MARK: Final = re.compile(r"[()\[\]{}#]|'''|\"\"\"|'|\"")
_CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
_QUOTE_OR_END: Final = {
    quote: re.compile(rf"\\.|{quote}" if len(quote) == 3 else rf"\\.|{quote}|\n", re.DOTALL)
    for quote in ("'", '"', "'''", '"""')
}
_MOST_BRACKETS: Final = 90


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
            if len(open_brackets) > _MOST_BRACKETS:
                raise _mistake(text, mark.start(), "brackets are nested too deeply")
        elif sign in ")]}":
            if not open_brackets and sign == "}":
                return mark.start()
            if not open_brackets or open_brackets.pop() != sign:
                raise _mistake(text, mark.start(), f"'{sign}' closes nothing")
        elif sign == "#":
            newline = text.find("\n", position)
            position = len(text) if newline < 0 else newline
        else:
            position = _after_literal(text, position, sign)
    raise _mistake(
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
    raise _mistake(text, start, "a text literal is never closed")


def _mistake(text: str, index: int, message: str) -> ExpressionSyntaxError:
    """Return the error for what stands at an index of the text."""
    line = text.count("\n", 0, index) + 1
    return ExpressionSyntaxError(message, line, index - (text.rfind("\n", 0, index) + 1) + 1)


class ExpressionTemplate:
    """A text whose expressions are compiled."""

    __slots__ = ("_parts", "_single", "_text", "constant")

    constant: bool
    """Whether there is no expression in the text."""

    def __init__(self, parts: list[str | Code]) -> None:
        self._parts = parts
        self.constant = not any(isinstance(part, Code) for part in parts)
        self._text = "".join(part for part in parts if isinstance(part, str))
        first = parts[0] if parts else ""
        whole = len(parts) == 1 or (len(parts) == 2 and parts[1] in ("\n", "\r\n"))
        self._single = first if whole and isinstance(first, Code) else None

    def render(self, scope: Mapping[str, Any]) -> Any:
        """Return the value: of the expression that is the whole text, otherwise a text.

        Raises `ExpressionError`.
        """
        if self._single is not None:
            return value_of(self._single, scope)
        if self.constant:
            return self._text
        texts = [
            part if isinstance(part, str) else to_text(value_of(part, scope))
            for part in self._parts
        ]
        if sum(map(len, texts)) > BYTES:
            raise ExpressionError("LimitError", f"it is larger than {BYTES:,} bytes", "the text")
        return "".join(texts)


@lru_cache(maxsize=_CACHED)
def compile_template(text: str) -> ExpressionTemplate:
    r"""Compile a text with `${…}` (`\${` stands for `${`); the same text is compiled once.

    Raises `ExpressionSyntaxError`.
    """
    return ExpressionTemplate(
        [part if isinstance(part, str) else _compiled(part, text) for part in split(text)]
    )


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


_DEEPEST: Final = 200


class Tree:
    """A JSON value whose texts are compiled."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        """Take a value with templates in the places of texts that have expressions."""
        self._value = value

    def render(self, scope: Mapping[str, Any]) -> Any:
        """Return a new value, its lists and mappings copied; raise `ExpressionError`.

        What an expression gives is not copied: it may be a value of the scope itself.
        """
        return _rendered(self._value, scope)


def compile_tree(value: Any) -> Tree:
    """Compile every text in a JSON value; keys of mappings are taken as they stand.

    Raises `ExpressionSyntaxError`, whose `path` leads to the text within the value.
    """
    return Tree(_compiled_tree(value, ()))


def _compiled_tree(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return the value with a template in the place of every text that has an expression."""
    if len(path) > _DEEPEST:
        raise ExpressionSyntaxError("the value is nested too deeply", path=path[:3])
    if isinstance(value, str):
        try:
            template = compile_template(value)
        except ExpressionSyntaxError as error:
            raise ExpressionSyntaxError(error.message, error.line, error.column, path) from None
        return template.render({}) if template.constant else template
    if isinstance(value, dict):
        return {key: _compiled_tree(each, (*path, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [_compiled_tree(each, (*path, index)) for index, each in enumerate(value)]
    return value


def _rendered(value: Any, scope: Mapping[str, Any]) -> Any:
    kind = type(value)
    if kind is ExpressionTemplate:
        return value.render(scope)
    if kind is dict:
        return {key: _rendered(each, scope) for key, each in value.items()}
    if kind is list:
        return [_rendered(each, scope) for each in value]
    return value
