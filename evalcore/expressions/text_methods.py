"""The methods of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from evalcore.expressions.budget import Budget
from evalcore.expressions.fields import fill
from evalcore.expressions.values import EvaluationFailure, check_key, describe, plain, take

Method = Callable[..., Any]
# The most characters that one can become when its case changes.
_WIDEST: Final = 3
# A piece of a text that is split: its place in the list, and a part of its object.
_PIECE: Final = 24
_LINE_ENDS: Final = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


def _asking(name: str) -> Method:
    """Return a method that gives a number or a truth value about the text."""
    function = getattr(str, name)

    def run(budget: Budget, text: str, *arguments: Any) -> Any:
        budget.charge(len(text) >> 10)
        return function(text, *(_argument(each, budget) for each in arguments))

    return run


def _argument(value: Any, budget: Budget) -> Any:
    """Return an argument of a builtin class; tuples of texts for `startswith` among them."""
    value = plain(value)
    if type(value) is tuple:
        check_key(value, budget)
        texts = tuple(plain(each) for each in value)
        budget.charge(sum(len(each) for each in texts if type(each) is str) >> 10)
        return texts
    if value is not None and type(value) not in (str, int, bool):
        raise EvaluationFailure("TypeError", f"a text's method does not take {describe(value)}")
    return value


def _changing(name: str) -> Method:
    """Return a method that gives the text with other letters, or less of it."""
    function = getattr(str, name)

    def run(budget: Budget, text: str, *arguments: Any) -> Any:
        budget.room(len(text) if text.isascii() else _WIDEST * len(text))
        return function(text, *(_argument(each, budget) for each in arguments))

    return run


def _stripping(name: str) -> Method:
    function = getattr(str, name)

    def run(budget: Budget, text: str, characters: Any = None) -> Any:
        budget.room(len(text))
        if characters is None:
            return function(text)
        removed = _text(characters)
        # Each character of the text may be looked for in all of the others.
        budget.charge(len(text) * len(removed) >> 12)
        return function(text, removed)

    return run


def _padding(name: str) -> Method:
    function = getattr(str, name)

    def run(budget: Budget, text: str, width: Any, *fill_with: Any) -> Any:
        width = _whole(width)
        budget.room(max(len(text), width))
        return function(text, width, *(_argument(each, budget) for each in fill_with))

    return run


def _whole(value: Any) -> int:
    value = plain(value)
    if type(value) not in (int, bool):
        raise EvaluationFailure("TypeError", f"an integer is wanted, not {describe(value)}")
    return int(value)


def _text(value: Any) -> str:
    value = plain(value)
    if type(value) is not str:
        raise EvaluationFailure("TypeError", f"a text is wanted, not {describe(value)}")
    return str(value)


def _splitting(name: str) -> Method:
    function = getattr(str, name)

    def run(budget: Budget, text: str, sep: Any = None, maxsplit: Any = -1) -> Any:
        separator = None if sep is None else _text(sep)
        most = _whole(maxsplit)
        if separator is None:
            # Words are counted by splitting off as many as a value may hold.
            bound = max(1, (budget.bytes - len(text)) // _PIECE)
            most = bound if most < 0 else min(most, bound)
            budget.room(len(text))
            pieces: list[str] = function(text, None, most)
            budget.room(len(text) + _PIECE * len(pieces))
            return pieces
        number = text.count(separator) + 1
        budget.room(len(text) + _PIECE * (number if most < 0 else min(number, most + 1)))
        return function(text, separator, most)

    return run


def _split_lines(budget: Budget, text: str, keepends: Any = False) -> Any:
    ends = sum(map(text.count, _LINE_ENDS))
    budget.room(len(text) + _PIECE * (ends + 1))
    return text.splitlines(bool(_whole(keepends)))


def _expand_tabs(budget: Budget, text: str, tabsize: Any = 8) -> str:
    size = _whole(tabsize)
    budget.room(len(text) + text.count("\t") * max(0, size))
    return text.expandtabs(size)


def _replace(budget: Budget, text: str, old: Any, new: Any, count: Any = -1) -> str:
    old, new, most = _text(old), _text(new), _whole(count)
    replaced = text.count(old) if most < 0 else min(text.count(old), most)
    budget.room(len(text) + replaced * max(0, len(new) - len(old)))
    return text.replace(old, new, most)


def _join(budget: Budget, text: str, parts: Any) -> str:
    texts = [plain(each) for each in take(parts, budget)]
    for each in texts:
        if type(each) is not str:
            raise EvaluationFailure(
                "TypeError", f"join() takes texts, not {describe(each)}; use str(…)"
            )
    budget.room(sum(map(len, texts)) + len(text) * max(0, len(texts) - 1))
    return text.join(texts)


def _format(budget: Budget, text: str, /, *values: Any, **by_name: Any) -> str:
    return fill(text, values, by_name, budget)


def _format_map(budget: Budget, text: str, by_name: Any) -> str:
    if not isinstance(by_name, Mapping):
        raise EvaluationFailure(
            "TypeError", f"format_map() takes a mapping, not {describe(by_name)}"
        )
    return fill(text, (), by_name, budget)


# fmt: off
_ASKING: Final = (
    "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii", "isdecimal",
    "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle",
    "isupper", "rfind", "rindex", "startswith",
)
_CHANGING: Final = (
    "capitalize", "casefold", "lower", "partition", "removeprefix", "removesuffix",
    "rpartition", "swapcase", "title", "upper",
)
# fmt: on

TEXT_METHODS: Final[Mapping[str, Method]] = {
    **{name: _asking(name) for name in _ASKING},
    **{name: _changing(name) for name in _CHANGING},
    **{name: _stripping(name) for name in ("lstrip", "rstrip", "strip")},
    **{name: _padding(name) for name in ("center", "ljust", "rjust", "zfill")},
    **{name: _splitting(name) for name in ("split", "rsplit")},
    "splitlines": _split_lines,
    "expandtabs": _expand_tabs,
    "replace": _replace,
    "join": _join,
    "format": _format,
    "format_map": _format_map,
}
