"""The tree of an ECMAScript regular expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Literal:
    """One character."""

    code: int


@dataclass(frozen=True, slots=True)
class CharacterSet:
    """One character out of a set; `inside` in the `regex` package's words, case not yet closed."""

    inside: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Symbol:
    """What the flags give its meaning: `^`, `$`, `.`, `b` (word boundary) or `B`."""

    kind: str


@dataclass(frozen=True, slots=True)
class CapturingGroup:
    """A capturing group; numbers count from 1."""

    number: int
    body: Node


@dataclass(frozen=True, slots=True)
class Lookaround:
    """A lookahead or, `behind`, a lookbehind."""

    body: Node
    behind: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Backreference:
    """What a group captured last, by its number or its name."""

    group: int | str


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` times; `high` None: no upper bound."""

    body: Node
    low: int
    high: int | None
    lazy: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; without items the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several."""

    options: tuple[Node, ...]


Node = (
    Literal
    | CharacterSet
    | Symbol
    | CapturingGroup
    | Lookaround
    | Backreference
    | Repeat
    | Sequence
    | Choice
)


@dataclass(frozen=True, slots=True)
class PatternTree:
    """A whole pattern; `names` are the numbers of its named groups."""

    body: Node
    names: Mapping[str, int]
