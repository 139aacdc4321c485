"""ECMAScript regular expressions in the syntax of the `regex` package.

The result uses only what means the same there: sets that name every character, groups, lookarounds,
repeats. Three things need care. A group that has not taken part matches the empty text, and each
round of a repeat forgets what its groups captured: an empty capture says both. A round that takes
nothing does not count: where a backreference could tell, the round has to move on from where it
began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from evalcore.patterns.character_sets import (
    ANYTHING,
    Folding,
    character_set,
    literal,
    members,
    with_variants,
)
from evalcore.patterns.ecmascript_syntax import LINE_TERMINATORS, WORD, WORD_FOLDED, parse
from evalcore.patterns.ecmascript_tree import (
    Backreference,
    CapturingGroup,
    CharacterSet,
    Choice,
    Literal,
    Lookaround,
    Node,
    Repeat,
    Sequence,
    Symbol,
)
from evalcore.patterns.errors import PatternError

FLAGS = "gimsu"
# The `regex` package writes out the least number of rounds; this bounds its memory.
_LARGEST_PATTERN = 100_000
_LARGEST_COUNT = 4_000_000_000


def translate(pattern: str, flags: str = "") -> str:
    """Return the pattern for `regex.compile(…, regex.V0)`; to be searched for, without flags.

    Raises `PatternError` (a `ValueError`) where ECMAScript would refuse the pattern or a flag, and
    where its least repeats come to more than 100 000 characters.
    """
    chosen = _check_flags(flags)
    try:
        tree = parse(pattern, chosen)
        return _Writer(chosen, tree.names).pattern(tree.body)
    except RecursionError:
        raise PatternError("the groups are nested too deeply", 0) from None


def _check_flags(flags: str) -> frozenset[str]:
    for position, flag in enumerate(flags):
        if flag not in FLAGS:
            raise PatternError(f"unknown flag {flag!r} (valid are {', '.join(FLAGS)})", position)
        if flag in flags[:position]:
            raise PatternError(f"flag {flag!r} is given twice", position)
    return frozenset(flags)


class _Writer:
    def __init__(self, flags: frozenset[str], names: Mapping[str, int]) -> None:
        self.names = names
        self.multiline = "m" in flags
        self.dot_all = "s" in flags
        self.folding: Folding | None = None
        if "i" in flags:
            self.folding = Folding.ECMASCRIPT_UNICODE if "u" in flags else Folding.ECMASCRIPT
        self.word = members(WORD_FOLDED if flags >= {"i", "u"} else WORD)
        self.referenced: frozenset[int] = frozenset()
        self.open: set[int] = set()
        self.marks = 0

    def pattern(self, body: Node) -> str:
        self.referenced = self._references(body)
        if self._size(body) > _LARGEST_PATTERN:
            raise PatternError("the quantifiers ask for too many repeats", 0)
        return self._forget(self.referenced) + self.write(body, behind=False)

    def write(self, node: Node, *, behind: bool) -> str:
        """Return the node as a pattern; `behind`: it is matched from right to left."""
        match node:
            case Literal(code):
                return literal(code, self.folding)
            case CharacterSet(inside, negated):
                return character_set(with_variants(inside, self.folding), negated=negated)
            case Symbol(kind):
                return self._symbol(kind)
            case Sequence(items):
                return "".join(self.write(item, behind=behind) for item in items)
            case Choice(options):
                return f"(?:{'|'.join(self.write(option, behind=behind) for option in options)})"
            case CapturingGroup(number, body):
                return self._group(number, body, behind=behind)
            case Lookaround(body, looks_behind, negated):
                opening = f"(?{'<' if looks_behind else ''}{'!' if negated else '='}"
                return f"{opening}{self.write(body, behind=looks_behind)})"
            case Backreference():
                return self._backreference(node)
            case Repeat():
                return self._repeat(node, behind=behind)
        assert_never(node)

    def _symbol(self, kind: str) -> str:
        ends = members(LINE_TERMINATORS)
        word = f"[{self.word}]"
        match kind:
            case "^":
                return f"(?<![^{ends}])" if self.multiline else r"\A"
            case "$":
                return f"(?![^{ends}])" if self.multiline else r"\Z"
            case ".":
                return ANYTHING if self.dot_all else f"[^{ends}]"
            case "b":
                return f"(?:(?<={word})(?!{word})|(?<!{word})(?={word}))"
            case _:
                return f"(?:(?<={word})(?={word})|(?<!{word})(?!{word}))"

    def _group(self, number: int, body: Node, *, behind: bool) -> str:
        opening = f"(?P<g{number}>" if number in self.referenced else "(?:"
        self.open.add(number)
        written = self.write(body, behind=behind)
        self.open.remove(number)
        return f"{opening}{written})"

    def _backreference(self, node: Backreference) -> str:
        number = self._number(node)
        if number in self.open:
            return ""  # within itself a group has not captured anything yet
        reference = f"(?P=g{number})"
        return f"(?i:{reference})" if self.folding else reference

    def _repeat(self, node: Repeat, *, behind: bool) -> str:
        body = self.write(node.body, behind=behind)
        forgotten = self._groups(node.body) & self.referenced
        lazy = "?" if node.lazy else ""
        if not forgotten:
            return f"(?:{body}){_bounds(node.low, node.high)}{lazy}"
        forget = self._forget(forgotten)
        a_round = body + forget if behind else forget + body
        if not _may_be_empty(node.body):
            return f"(?:{a_round}){_bounds(node.low, node.high)}{lazy}"
        first = f"(?:{a_round}){_bounds(node.low, node.low)}" if node.low else ""
        more = None if node.high is None else node.high - node.low
        repeats = f"(?:{self._moving(a_round, behind=behind)}){_bounds(0, more)}{lazy}"
        return repeats + first if behind else first + repeats

    def _moving(self, a_round: str, *, behind: bool) -> str:
        """Return the round with the condition that it ends elsewhere than it began.

        Equal places are those with an equally long rest of the text before (behind) or after them.
        """
        self.marks += 1
        mark = f"m{self.marks}"
        if behind:
            return rf"(?<!\A(?P={mark})){a_round}(?<=\A(?P<{mark}>{ANYTHING}*))"
        return rf"(?=(?P<{mark}>{ANYTHING}*)\Z){a_round}(?!(?P={mark})\Z)"

    def _forget(self, numbers: frozenset[int]) -> str:
        return "".join(f"(?P<g{number}>)" for number in sorted(numbers))

    def _number(self, node: Backreference) -> int:
        return self.names[node.group] if isinstance(node.group, str) else node.group

    def _references(self, node: Node, inside: frozenset[int] = frozenset()) -> frozenset[int]:
        """Return the groups that are referred to from outside of themselves."""
        match node:
            case Backreference():
                return frozenset({self._number(node)}) - inside
            case CapturingGroup(number, body):
                return self._references(body, inside | {number})
            case _:
                references = (self._references(child, inside) for child in _children(node))
                return frozenset().union(*references)

    def _groups(self, node: Node) -> frozenset[int]:
        own = frozenset({node.number}) if isinstance(node, CapturingGroup) else frozenset()
        return own.union(*(self._groups(child) for child in _children(node)))

    def _size(self, node: Node) -> int:
        """Return about how many pieces the pattern comes to once its least repeats are written."""
        size = 1 + sum(self._size(child) for child in _children(node))
        if not isinstance(node, Repeat):
            return size
        doubled = _may_be_empty(node.body) and bool(self._groups(node.body) & self.referenced)
        return size * (max(node.low, 1) + (1 if doubled else 0))


def _children(node: Node) -> tuple[Node, ...]:
    match node:
        case Sequence(items):
            return items
        case Choice(options):
            return options
        case CapturingGroup(_, body) | Lookaround(body) | Repeat(body):
            return (body,)
        case Literal() | CharacterSet() | Symbol() | Backreference():
            return ()
    assert_never(node)


def _may_be_empty(node: Node) -> bool:
    match node:
        case Literal() | CharacterSet():
            return False
        case Symbol(kind):
            return kind != "."
        case Sequence(items):
            return all(_may_be_empty(item) for item in items)
        case Choice(options):
            return any(_may_be_empty(option) for option in options)
        case CapturingGroup(_, body):
            return _may_be_empty(body)
        case Repeat(body, low):
            return low == 0 or _may_be_empty(body)
        case Lookaround() | Backreference():
            return True
    assert_never(node)


def _bounds(low: int, high: int | None) -> str:
    if high is None or high > _LARGEST_COUNT:
        return f"{{{low},}}"
    return f"{{{low},{high}}}"
