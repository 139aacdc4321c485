r"""Patterns so plain that ECMAScript's and Python's dialects differ in `.` and `$` only.

Most patterns that people write in assertions are of this kind: literals, `\d`, `\w`, `\b`, `.`, at
most one `+` or `*`, a few `?`. Taking them as they are saves the parsing and translating of every
other pattern, which costs ten times as much as compiling it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ATOM = r"""(?:[A-Za-z0-9_ "'#%&,:;<=>@`~!/-]|\\[dw.+*?()\[\]{}|^$/\\"'-]|\.)"""
_PLAIN = re.compile(
    rf"\^?+(?:\\b|{_ATOM}\?{{0,1}}+(?![+*?]))*+({_ATOM}[+*]\??+(?![+*?]))?+"
    rf"(?:\\b|{_ATOM}\?{{0,1}}+(?![+*?]))*+\$?"
)
# About a tenth of a second of `re`.
AFFORDABLE_STEPS = 10_000_000
_LONGEST_PATTERN = 1_000
_MOST_OPTIONAL = 3
_ESCAPED = re.compile(r"\\.")
# ECMAScript's `.` takes none of these, Python's does.
_LINE_TERMINATORS = ("\r", "\u2028", "\u2029")


class PlainPattern(NamedTuple):
    """A plain pattern in Python's syntax, and what bounds the steps that a search takes.

    A text of n characters takes at most `size`·n steps, or `size`·n² where something repeats. In
    texts with one of `foreign_characters` the pattern means something else.
    """

    text: str
    size: int
    repeats: bool
    foreign_characters: tuple[str, ...] = ()

    def steps(self, length: int) -> int:
        """Return a bound for the steps of a search in a text of this length."""
        return self.size * ((length + 1) ** 2 if self.repeats else length + 1)

    def ends_soon(self, length: int) -> bool:
        """Return whether `re` ends soon in any text of this length or a shorter one."""
        return self.steps(length) <= AFFORDABLE_STEPS


def plain_ecmascript(pattern: str) -> PlainPattern | None:
    """Return a plain ECMAScript pattern for `re.ASCII`; None for any other pattern."""
    plain = plain_python(pattern)
    if plain is None:
        return None
    bare = _ESCAPED.sub("", pattern)
    text = f"{pattern[:-1]}\\Z" if bare.endswith("$") else pattern
    # A set of characters beyond ASCII takes `re` five times as long to compile as the rest.
    return plain._replace(text=text, foreign_characters=_LINE_TERMINATORS if "." in bare else ())


def plain_python(pattern: str) -> PlainPattern | None:
    """Return a plain pattern as it is; None for any other pattern."""
    if len(pattern) > _LONGEST_PATTERN:
        return None
    match = _PLAIN.fullmatch(pattern)
    optional = pattern.count("?")
    if match is None or optional > _MOST_OPTIONAL:
        return None
    return PlainPattern(pattern, (len(pattern) + 1) << optional, match[1] is not None)
