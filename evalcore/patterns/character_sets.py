"""Sets of characters as the `regex` package writes them, and their closure under letter case.

Patterns of other dialects are translated without the package's own IGNORECASE: what counts as the
same letter differs between the dialects, so every set names all the letters that it matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import NamedTuple

Range = tuple[int, int]

LAST_CODE = 0x10FFFF
ANYTHING = "(?s:.)"
NOTHING = "(?!)"
# No script beyond Adlam has letter case; a later one would only lose its case-insensitivity.
_LAST_CASED = 0x1E943


class Folding(StrEnum):
    """What a dialect takes for the same letter when it ignores case."""

    PYTHON = "python"
    PYTHON_ASCII = "python-ascii"
    ECMASCRIPT = "ecmascript"
    ECMASCRIPT_UNICODE = "ecmascript-unicode"


def escape(code: int) -> str:
    """Return the code point as a literal that holds inside a set and outside of one."""
    char = chr(code)
    if char.isascii() and char.isalnum():
        return char
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def members(ranges: Iterable[Range]) -> str:
    """Return the inside of a `[…]` that holds the code points of `ranges` (bounds included)."""
    return "".join(
        escape(low) if low == high else f"{escape(low)}-{escape(high)}" for low, high in ranges
    )


def complement(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the code points that are in none of `ranges`."""
    gaps: list[Range] = []
    start = 0
    for low, high in sorted(ranges):
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    if start <= LAST_CODE:
        gaps.append((start, LAST_CODE))
    return tuple(gaps)


def character_set(inside: str, *, negated: bool) -> str:
    """Return the set `[inside]` or `[^inside]` as a pattern."""
    if not inside:
        return ANYTHING if negated else NOTHING
    if negated and r"\p{" in inside and r"\P{" in inside:
        # The package takes a property beside its opposite for "any", and then forgets the `^`.
        return f"(?:(?![{inside}]){ANYTHING})"
    return f"[^{inside}]" if negated else f"[{inside}]"


def literal(code: int, folding: Folding | None) -> str:
    """Return the character as a pattern, a set of its variants where case is ignored."""
    if folding is None:
        return escape(code)
    table = _case_table(folding)
    variants = table.letters.get(table.keys.get(chr(code), ""), "")
    if not variants:
        return escape(code)
    return "[" + "".join(escape(ord(variant)) for variant in variants) + "]"


def with_variants(inside: str, folding: Folding | None) -> str:
    """Return the inside of a set together with every variant of a letter in it.

    It has to be made before a negation: Python and ECMAScript both negate the whole.
    """
    if folding is None or not inside:
        return inside
    import regex

    table = _case_table(folding)
    present = set(regex.findall(f"[{inside}]", table.cased, regex.V0))
    variants = {letter for key in {table.keys[c] for c in present} for letter in table.letters[key]}
    return inside + "".join(escape(ord(letter)) for letter in sorted(variants - present))


class _CaseTable(NamedTuple):
    """`keys`: letter → what its variants have in common; `letters`: that → all the variants."""

    cased: str
    keys: Mapping[str, str]
    letters: Mapping[str, str]


@cache
def _case_table(folding: Folding) -> _CaseTable:
    letters: dict[str, str] = {}
    for char in map(chr, range(_LAST_CASED + 1)):
        if char.upper() != char or char.lower() != char or char.casefold() != char:
            key = _case_key(char, folding)
            letters[key] = letters.get(key, "") + char
    letters = {key: variants for key, variants in letters.items() if len(variants) > 1}
    keys = {letter: key for key, variants in letters.items() for letter in variants}
    return _CaseTable("".join(keys), keys, letters)


def _case_key(char: str, folding: Folding) -> str:
    """Return what exactly the variants of one letter have in common.

    Python: the lower-case letter, where those with the same upper case are one (`re._casefix`).
    ECMAScript: Canonicalize, which is upper case without `u` (never from outside ASCII into it)
    and simple case folding with it.
    """
    match folding:
        case Folding.PYTHON:
            return char.lower()[0].upper()
        case Folding.PYTHON_ASCII:
            return char.lower() if char.isascii() else char
        case Folding.ECMASCRIPT:
            upper = char.upper()
            return upper if len(upper) == 1 and (char.isascii() or not upper.isascii()) else char
        case Folding.ECMASCRIPT_UNICODE:
            folded = char.casefold()
            if len(folded) > 1:  # full folding; the simple one is the lower case, if it has one
                folded = char.lower()
            return folded if len(folded) == 1 else char
