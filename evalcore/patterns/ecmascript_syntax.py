"""The grammar of ECMAScript regular expressions, with its Annex B leniencies.

Follows ECMA-262 (2024), 22.2.1 and B.1.2, with the project's choice that a character is a character
with or without the flag `u`: a surrogate pair of escapes is one character.
"""

from __future__ import annotations

import re
from typing import NoReturn

from evalcore.patterns.character_sets import LAST_CODE, Range, complement, escape, members
from evalcore.patterns.ecmascript_properties import property_members
from evalcore.patterns.ecmascript_tree import (
    Backreference,
    CapturingGroup,
    CharacterSet,
    Choice,
    Literal,
    Lookaround,
    Node,
    PatternTree,
    Repeat,
    Sequence,
    Symbol,
)
from evalcore.patterns.errors import PatternError

DIGITS: tuple[Range, ...] = ((0x30, 0x39),)
WORD: tuple[Range, ...] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
# With `i` and `u` together these two fold into ASCII letters.
WORD_FOLDED: tuple[Range, ...] = (*WORD, (0x17F, 0x17F), (0x212A, 0x212A))
WHITE_SPACE: tuple[Range, ...] = (
    (0x9, 0xD),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)
LINE_TERMINATORS: tuple[Range, ...] = ((0xA, 0xA), (0xD, 0xD), (0x2028, 0x2029))

_CONTROL = {"t": 0x9, "n": 0xA, "v": 0xB, "f": 0xC, "r": 0xD}
_SYNTAX_CHARACTERS = "^$\\.*+?()[]{}|/"
_BRACES = re.compile(r"\{([0-9]+)(?:(,)([0-9]*))?\}")
_SHORT_QUANTIFIERS: dict[str, tuple[int, int | None]] = {
    "*": (0, None),
    "+": (1, None),
    "?": (0, 1),
}
_OCTAL = re.compile(r"[0-3][0-7]{0,2}|[4-7][0-7]?")
_PROPERTY = re.compile(r"\{([A-Za-z0-9_=]+)\}")


def parse(pattern: str, flags: frozenset[str]) -> PatternTree:
    """Return the pattern's tree; raise `PatternError` where the language does not allow it."""
    return _Parser(pattern, flags).tree()


def _scan_groups(pattern: str) -> tuple[int, bool]:
    """Return how many capturing groups the pattern has, and whether one of them has a name.

    Both decide what an escape before the group means.
    """
    count, named = 0, False
    at, in_set = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_set:
            in_set = char != "]"
        elif char == "[":
            in_set = True
        elif char == "(":
            is_named = re.compile(r"\(\?<(?![=!])").match(pattern, at) is not None
            named = named or is_named
            count += is_named or pattern[at + 1 : at + 2] != "?"
        at += 1
    return count, named


class _Parser:
    """Reads a pattern from left to right; `at` is the next character."""

    def __init__(self, pattern: str, flags: frozenset[str]) -> None:
        self.text = pattern
        self.at = 0
        self.unicode = "u" in flags
        self.word = WORD_FOLDED if flags >= {"i", "u"} else WORD
        self.group_count, self.has_names = _scan_groups(pattern)
        self.groups_seen = 0
        self.names: dict[str, int] = {}
        self.references: list[tuple[str, int]] = []

    def tree(self) -> PatternTree:
        body = self.disjunction()
        if self.at < len(self.text):
            self.fail("unmatched ')'")
        for name, position in self.references:
            if name not in self.names:
                raise PatternError(f"no group is named {name!r}", position)
        return PatternTree(body, self.names)

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        raise PatternError(message, self.at if position is None else position)

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def eat(self, token: str) -> bool:
        if not self.text.startswith(token, self.at):
            return False
        self.at += len(token)
        return True

    def disjunction(self) -> Node:
        options = [self.alternative()]
        while self.eat("|"):
            options.append(self.alternative())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def alternative(self) -> Node:
        items: list[Node] = []
        while self.peek() not in ("", "|", ")"):
            items.append(self.term())
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def term(self) -> Node:
        char = self.peek()
        if char in "^$":
            self.at += 1
            return Symbol(char)
        if self.eat(r"\b"):
            return Symbol("b")
        if self.eat(r"\B"):
            return Symbol("B")
        atom = self.group() if char == "(" else self.atom()
        if isinstance(atom, Lookaround) and (atom.behind or self.unicode):
            return atom  # a quantifier that follows has nothing to repeat
        return self.quantified(atom)

    def atom(self) -> Node:
        char = self.peek()
        if char == "\\":
            return self.escape()
        if char == "[":
            return self.character_set()
        if char in "*+?" or (char == "{" and _BRACES.match(self.text, self.at)):
            self.fail("nothing to repeat")
        if self.unicode and char in "{}]":
            self.fail(f"lone {char!r}")
        self.at += 1
        return Symbol(".") if char == "." else Literal(ord(char))

    def quantified(self, atom: Node) -> Node:
        short = _SHORT_QUANTIFIERS.get(self.peek())
        if short is not None:
            self.at += 1
            low, high = short
        elif braces := _BRACES.match(self.text, self.at):
            low = _count(braces[1])
            high = low if braces[2] is None else _count(braces[3]) if braces[3] else None
            if high is not None and low > high:
                self.fail("the quantifier's numbers are out of order")
            self.at = braces.end()
        else:
            return atom
        return Repeat(atom, low, high, lazy=self.eat("?"))

    def group(self) -> Node:
        start = self.at
        self.at += 1
        node: Node
        if self.eat("?:"):
            node = Sequence((self.disjunction(),))
        elif self.eat("?="):
            node = Lookaround(self.disjunction(), behind=False, negated=False)
        elif self.eat("?!"):
            node = Lookaround(self.disjunction(), behind=False, negated=True)
        elif self.eat("?<="):
            node = Lookaround(self.disjunction(), behind=True, negated=False)
        elif self.eat("?<!"):
            node = Lookaround(self.disjunction(), behind=True, negated=True)
        else:
            node = self.capture(start)
        if not self.eat(")"):
            self.fail("missing ')' for the group", start)
        return node

    def capture(self, start: int) -> Node:
        self.groups_seen += 1
        number = self.groups_seen
        if self.eat("?<"):
            name = self.group_name()
            if name in self.names:
                self.fail(f"two groups are named {name!r}", start)
            self.names[name] = number
        elif self.peek() == "?":
            if re.match(r"\?[a-zA-Z]+[:)]", self.text[self.at :]):
                self.fail("inline flags are not ECMAScript's; give the flags apart: `flags: i`")
            self.fail("unknown group; ECMAScript has (?:…) (?=…) (?!…) (?<=…) (?<!…) (?<name>…)")
        return CapturingGroup(number, self.disjunction())

    def group_name(self) -> str:
        """Read a name and its `>`; the `<` has been read."""
        start = self.at
        name = ""
        while not self.eat(">"):
            char = self.peek()
            self.at += 1
            if char == "\\" and self.eat("u"):
                code = self.unicode_escape(braces=True)
                char = "" if code is None else chr(code)
            if not char or not _is_name(name + char):
                self.fail("invalid group name", start)
            name += char
        if not name:
            self.fail("invalid group name", start)
        return name

    def escape(self) -> Node:
        """Read an escape outside of a set; `\\b` and `\\B` are read elsewhere."""
        start = self.at
        self.at += 1
        char = self.peek()
        if char in tuple("123456789"):
            digits = re.compile(r"[0-9]+").match(self.text, self.at)
            number = _count(digits[0]) if digits else 0
            if number <= self.group_count:
                self.at += len(str(number))
                return Backreference(number)
            if self.unicode:
                self.fail(f"there is no group {number}", start)
        if char == "k" and (self.unicode or self.has_names):
            self.at += 1
            if not self.eat("<"):
                self.fail(r"\k needs <name>", start)
            name = self.group_name()
            self.references.append((name, start))
            return Backreference(name)
        if (inside := self.class_escape()) is not None:
            return CharacterSet(inside)
        return Literal(self.character_escape(start, in_set=False))

    def class_escape(self) -> str | None:
        r"""Read what follows the backslash of `\d`, `\p{…}` and their kin, if it is one of them."""
        char = self.peek()
        ranges = {"d": DIGITS, "w": self.word, "s": WHITE_SPACE}.get(char.lower())
        if ranges is not None:
            self.at += 1
            return members(complement(ranges) if char.isupper() else ranges)
        if not (self.unicode and char in ("p", "P")):
            return None
        match = _PROPERTY.match(self.text, self.at + 1)
        if match is None:
            self.fail(rf"\{char} needs {{property}}")
        try:
            inside = property_members(match[1], negated=char == "P")
        except ValueError as error:
            self.fail(str(error))
        self.at = match.end()
        return inside

    def character_escape(self, start: int, *, in_set: bool) -> int:  # noqa: C901 - one case a kind
        """Read what follows the backslash at `start` and return the code point that it means."""
        char = self.peek()
        if not char:
            self.fail("the pattern ends in a backslash", start)
        if not self.unicode and (octal := _OCTAL.match(self.text, self.at)):
            self.at = octal.end()
            return int(octal[0], 8)
        self.at += 1
        if char in _CONTROL:
            return _CONTROL[char]
        if in_set and char == "b":
            return 0x8
        if char == "0" and self.peek() not in tuple("0123456789"):
            return 0
        if char == "c":
            return self.control_letter(start, in_set=in_set)
        if char == "x" and (match := re.compile(r"[0-9A-Fa-f]{2}").match(self.text, self.at)):
            self.at = match.end()
            return int(match[0], 16)
        if char == "u" and (code := self.unicode_escape(braces=self.unicode)) is not None:
            return code
        if self.unicode and char not in _SYNTAX_CHARACTERS and not (in_set and char == "-"):
            self.fail("invalid escape", start)
        if char == "k" and self.has_names:
            self.fail("invalid escape", start)
        return ord(char)

    def control_letter(self, start: int, *, in_set: bool) -> int:
        r"""Read the letter of `\cX`; without one the backslash stands for itself (Annex B)."""
        allowed = r"[A-Za-z0-9_]" if in_set and not self.unicode else r"[A-Za-z]"
        letter = self.peek()
        if re.compile(allowed).fullmatch(letter):
            self.at += 1
            return ord(letter) % 32
        if self.unicode:
            self.fail(r"\c needs a letter", start)
        self.at -= 1
        return ord("\\")

    def unicode_escape(self, *, braces: bool) -> int | None:
        r"""Read what follows `\u`; None, and nothing read, where it is no such escape."""
        if braces and (match := re.compile(r"\{([0-9A-Fa-f]+)\}").match(self.text, self.at)):
            code = int(match[1], 16)
            if code > LAST_CODE:
                return None
            self.at = match.end()
            return code
        match = re.compile(r"([0-9A-Fa-f]{4})(?:\\u([Dd][C-Fc-f][0-9A-Fa-f]{2}))?").match(
            self.text, self.at
        )
        if match is None:
            return None
        code = int(match[1], 16)
        if 0xD800 <= code <= 0xDBFF and match[2]:
            self.at = match.end()
            return 0x10000 + ((code - 0xD800) << 10) + int(match[2], 16) - 0xDC00
        self.at = match.end(1)
        return code

    def character_set(self) -> Node:
        start = self.at
        self.at += 1
        negated = self.eat("^")
        inside = ""
        while not self.eat("]"):
            if not self.peek():
                self.fail("missing ']' for the set", start)
            inside += self.set_range(start)
        return CharacterSet(inside, negated)

    def set_range(self, start: int) -> str:
        position = self.at
        low = self.set_atom(start)
        if not self.text.startswith("-", self.at) or self.text.startswith("-]", self.at):
            return low if isinstance(low, str) else escape(low)
        self.at += 1
        high = self.set_atom(start)
        if isinstance(low, int) and isinstance(high, int):
            if low > high:
                self.fail("the range is out of order", position)
            return members([(low, high)])
        if self.unicode:
            self.fail("a range needs single characters", position)
        parts = (low, ord("-"), high)
        return "".join(part if isinstance(part, str) else escape(part) for part in parts)

    def set_atom(self, start: int) -> int | str:
        """Read one member: a code point, or the inside of a set that an escape stands for."""
        char = self.peek()
        position = self.at
        if not char:
            self.fail("missing ']' for the set", start)
        self.at += 1
        if char != "\\":
            return ord(char)
        inside = self.class_escape()
        return self.character_escape(position, in_set=True) if inside is None else inside


def _is_name(text: str) -> bool:
    return re.sub(r"[$\u200c\u200d]", "_", text).isidentifier() and text[0] not in "\u200c\u200d"


def _count(digits: str) -> int:
    """Return the number, or one beyond every text's length where it has very many digits."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) < 18 else 10**18
