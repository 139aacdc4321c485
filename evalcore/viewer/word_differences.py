"""What differs between two texts, word by word."""

from __future__ import annotations

import re
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
    compared_all: bool

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs in what was compared."""
        return all(piece.kind == SAME for piece in self.pieces)


def word_difference(was: str, now: str) -> WordDifference:
    """Return what differs between two texts; at most their first 1 500 words are compared.

    `same` and `removed` pieces make the first text, `same` and `added` ones the second, but for
    white space between words, which is the second text's where only that differs.
    """
    all_words = [_WORD.findall(text) for text in (was, now)]
    before, after = (words[:_MOST_WORDS] for words in all_words)
    bare_before, bare_after = ([word.strip() for word in words] for words in (before, after))
    matcher = SequenceMatcher(None, bare_before, bare_after)
    pieces = []
    for tag, start, stop, new_start, new_stop in matcher.get_opcodes():
        removed = () if tag == "equal" else before[start:stop]
        pieces.append(Piece(REMOVED, "".join(removed)))
        kind = SAME if tag == "equal" else ADDED
        pieces.append(Piece(kind, "".join(after[new_start:new_stop])))
    shown = tuple(piece for piece in pieces if piece.text)
    return WordDifference(shown, matcher.ratio(), max(map(len, all_words)) <= _MOST_WORDS)
