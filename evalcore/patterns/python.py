r"""Patterns of Python's `re` in the syntax of the `regex` package, and when that is not needed.

`re` cannot be interrupted, so it searches only texts so short that even the worst case ends soon;
longer ones are left to the `regex` package, which has a time limit. The two differ in syntax and in
what `\w`, `\s` and ignoring case mean; the translation starts from the tree that `re` itself makes
of the pattern, so nothing of the package's own syntax can be taken for something else.
"""

from __future__ import annotations

import importlib
import math
import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from evalcore.patterns.character_sets import (
    ANYTHING,
    Folding,
    character_set,
    escape,
    literal,
    with_variants,
)
from evalcore.patterns.errors import PatternError
from evalcore.patterns.plain import AFFORDABLE_STEPS

# The `regex` package writes out the least number of rounds; this bounds its memory.
_LARGEST_PATTERN = 100_000

_CATEGORIES = {"WORD": r"\p{L}\p{N}_", "SPACE": r"\s\x1c-\x1f", "DIGIT": r"\p{Nd}"}
_ASCII_CATEGORIES = {"WORD": "0-9A-Z_a-z", "SPACE": r"\t-\r\x20", "DIGIT": "0-9"}
_CHARACTER_TYPES = int(re.ASCII | re.LOCALE | re.UNICODE)

# `re._parser.SubPattern`: pairs of an opcode and what belongs to it.
Items = Any


def silenced(pattern: str) -> AbstractContextManager[None]:
    """Silence `re`, which warns of sets that a later version might read otherwise."""
    if "[" not in pattern:
        return nullcontext()
    return warnings.catch_warnings(action="ignore", category=FutureWarning)


def parse(pattern: str, flags: int) -> tuple[Items, int]:
    """Return the tree that `re` makes of a valid pattern, and the flags that hold for all of it."""
    with silenced(pattern):
        tree = importlib.import_module("re._parser").parse(pattern, flags)
    return tree, tree.state.flags | flags


def ends_soon(items: Items, length: int) -> bool:
    """Return whether `re` finds its answer soon in any text of this length or a shorter one."""
    return (length + 1) * least_size(items) * _ways(items, length) <= AFFORDABLE_STEPS


def translate(items: Items, flags: int) -> str:
    """Return the pattern for `regex.compile(…, regex.V0)`; to be searched for, without flags.

    Raises `PatternError` where its least repeats come to more than 100 000 characters.
    """
    if least_size(items) > _LARGEST_PATTERN:
        raise PatternError("the quantifiers ask for too many repeats for a text of this length")
    return _write(items, flags)


def _parts(operator: str, argument: Any) -> Iterator[Items]:
    """Yield the patterns within one item."""
    match operator:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            yield argument[2]
        case "SUBPATTERN":
            yield argument[3]
        case "ATOMIC_GROUP":
            yield argument
        case "ASSERT" | "ASSERT_NOT":
            yield argument[1]
        case "BRANCH":
            yield from argument[1]
        case "GROUPREF_EXISTS":
            yield from (part for part in argument[1:] if part is not None)


def least_size(items: Items) -> int:
    """Return about how many pieces the pattern comes to once its least repeats are written."""
    total = 1
    for operator, argument in items:
        size = 1 + sum(least_size(part) for part in _parts(str(operator), argument))
        total += size * max(int(argument[0]), 1) if str(operator).endswith("_REPEAT") else size
    return total


def _ways(items: Items, length: int) -> float:
    """Return a bound for the ways in which the items can match from one place of a text."""
    total = 1.0
    for operator, argument in items:
        name = str(operator)
        if name == "GROUPREF":
            total *= length + 1
            continue
        parts = [_ways(part, length) for part in _parts(name, argument)]
        ways = sum(parts) if parts else 1.0
        if name.endswith("_REPEAT"):
            low, high = int(argument[0]), int(argument[1])
            rounds = min(high, max(low, length + 1))
            endless = ways > 1 and rounds * math.log2(ways) > 64
            ways = math.inf if endless else (rounds + 1) * ways**rounds
        total *= ways
    return total


def _write(items: Items, flags: int) -> str:
    return "".join(_item(str(operator), argument, flags) for operator, argument in items)


def _item(operator: str, argument: Any, flags: int) -> str:  # noqa: C901, PLR0911 - one case an opcode
    match operator:
        case "LITERAL":
            return literal(argument, _folding(flags))
        case "NOT_LITERAL":
            return character_set(with_variants(escape(argument), _folding(flags)), negated=True)
        case "ANY":
            return ANYTHING if flags & re.DOTALL else r"[^\n]"
        case "IN":
            return _set(argument, flags)
        case "AT":
            return _assertion(str(argument), flags)
        case "BRANCH":
            return f"(?:{'|'.join(_write(option, flags) for option in argument[1])})"
        case "SUBPATTERN":
            return _group(argument, flags)
        case "ATOMIC_GROUP":
            return f"(?>{_write(argument, flags)})"
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            low, high, body = argument
            mode = {"MAX_REPEAT": "", "MIN_REPEAT": "?", "POSSESSIVE_REPEAT": "+"}[operator]
            bounds = f"{low}," if str(high) == "MAXREPEAT" else f"{low},{high}"
            return f"(?:{_write(body, flags)}){{{bounds}}}{mode}"
        case "ASSERT" | "ASSERT_NOT":
            return _lookaround(argument, flags, negated=operator == "ASSERT_NOT")
        case "GROUPREF":
            reference = f"(?P=g{argument})"
            return f"(?i:{reference})" if flags & re.IGNORECASE else reference
        case "GROUPREF_EXISTS":
            number, yes, no = argument
            otherwise = "" if no is None else f"|{_write(no, flags)}"
            return f"(?(g{number}){_write(yes, flags)}{otherwise})"
    raise PatternError(f"this pattern cannot be given a time limit ({operator})")


def _folding(flags: int) -> Folding | None:
    if not flags & re.IGNORECASE:
        return None
    return Folding.PYTHON_ASCII if flags & re.ASCII else Folding.PYTHON


def _group(argument: Any, flags: int) -> str:
    number, added, removed, body = argument
    if added & _CHARACTER_TYPES:
        flags &= ~_CHARACTER_TYPES
    opening = "(?:" if number is None else f"(?P<g{number}>"
    return f"{opening}{_write(body, (flags | added) & ~removed)})"


def _lookaround(argument: Any, flags: int, *, negated: bool) -> str:
    direction, body = argument
    sign = "!" if negated else "="
    if direction >= 0:
        return f"(?{sign}{_write(body, flags)})"
    # `re` goes back by the body's fixed width and matches from left to right; the `regex` package
    # would match a body in a lookbehind from right to left.
    width = int(body.getwidth()[0])
    return f"(?<{sign}(?={_write(body, flags)}){ANYTHING}{{{width}}})"


def _assertion(kind: str, flags: int) -> str:
    word = _category("WORD", flags)
    before, after = f"(?<=[{word}])", f"(?=[{word}])"
    not_before, not_after = f"(?<![{word}])", f"(?![{word}])"
    match kind:
        case "AT_BEGINNING":
            return r"(?<![^\n])" if flags & re.MULTILINE else r"\A"
        case "AT_END":
            return r"(?![^\n])" if flags & re.MULTILINE else r"(?=\n?\Z)"
        case "AT_BEGINNING_STRING":
            return r"\A"
        case "AT_END_STRING":
            return r"\Z"
        case "AT_BOUNDARY":
            return f"(?:{before}{not_after}|{not_before}{after})"
        case "AT_NON_BOUNDARY":  # `re` finds none in an empty text
            return rf"(?!\A\Z)(?:{before}{after}|{not_before}{not_after})"
    raise PatternError(f"this pattern cannot be given a time limit ({kind})")


def _category(name: str, flags: int) -> str:
    return (_ASCII_CATEGORIES if flags & re.ASCII else _CATEGORIES)[name]


def _set(items: Any, flags: int) -> str:
    """Return the set; the complement of a category within it becomes an alternative to it.

    Ignoring case adds to the characters that are named, not to the categories.
    """
    characters, categories, negated = "", "", False
    alternatives: list[str] = []
    for operator, argument in items:
        match str(operator):
            case "NEGATE":
                negated = True
            case "LITERAL":
                characters += escape(argument)
            case "RANGE":
                characters += f"{escape(argument[0])}-{escape(argument[1])}"
            case "CATEGORY":
                name = str(argument).removeprefix("CATEGORY_")
                category = _category(name.removeprefix("NOT_"), flags)
                if name.startswith("NOT_"):
                    alternatives.append(f"[^{category}]")
                else:
                    categories += category
    inside = with_variants(characters, _folding(flags)) + categories
    if not alternatives:
        return character_set(inside, negated=negated)
    if inside:
        alternatives.append(character_set(inside, negated=False))
    either = "|".join(alternatives)
    return f"(?:(?!{either}){ANYTHING})" if negated else f"(?:{either})"
