"""What differs between two texts, word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, NamedTuple

SAME: Final = "same"
REMOVED: Final = "removed"
ADDED: Final = "added"
# The comparison of a word takes longer the more words there are: beyond these it takes seconds.
_MOST_WORDS: Final = 1_500
_WORD: Final = re.compile(r"\s*(?:\w+|[^\w\s])|\s+")


class Piece(NamedTuple):
    """Part of a text: `same` in both, `removed` from the first, or `added` in the second."""

    kind: str
    text: str


class WordDifference(NamedTuple):
    """The pieces that make the second text of the first, in order.

    `shared` is the share of the words that both have, from 0 to 1. `compared_all` says whether
    all words were compared; otherwise the rest of both texts is not in `pieces`.
    """

    pieces: tuple[Piece, ...]
    shared: float
    compared_all: bool = True

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs in what was compared."""
        return all(piece.kind == SAME for piece in self.pieces)


def word_difference(was: str, now: str) -> WordDifference:
    """Return what differs between two texts; at most their first 1 500 words are compared.

    `same` and `removed` pieces make the first text, `same` and `added` ones the second, but for
    white space between words, which is the second text's where only that differs.
    """
    words = [_words(was), _words(now)]
    before, after = (each[:_MOST_WORDS] for each in words)
    bare_before, bare_after = (tuple(word.strip() for word in each) for each in (before, after))
    matcher = SequenceMatcher(None, bare_before, bare_after)
    pieces = tuple(_merged(_pieces(matcher, before, after)))
    return WordDifference(pieces, matcher.ratio(), max(map(len, words)) <= _MOST_WORDS)


def _words(text: str) -> list[str]:
    """Return the words of a text, each with the white space before it; of a long text the first."""
    words: list[str] = []
    for match in _WORD.finditer(text):
        words.append(match[0])
        if len(words) > _MOST_WORDS:
            break
    return words


def _pieces(
    matcher: SequenceMatcher[str], before: Sequence[str], after: Sequence[str]
) -> Iterator[Piece]:
    for tag, start, stop, new_start, new_stop in matcher.get_opcodes():
        if tag == "equal":
            yield Piece(SAME, "".join(after[new_start:new_stop]))
            continue
        if stop > start:
            yield Piece(REMOVED, "".join(before[start:stop]))
        if new_stop > new_start:
            yield Piece(ADDED, "".join(after[new_start:new_stop]))


def _merged(pieces: Iterator[Piece]) -> Iterator[Piece]:
    last: Piece | None = None
    for piece in pieces:
        if last is not None and last.kind == piece.kind:
            last = Piece(last.kind, last.text + piece.text)
            continue
        if last is not None:
            yield last
        last = piece
    if last is not None:
        yield last
