"""Word differences: what is kept, what went, what came; how long texts are handled."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcore.viewer.views.texts import ADDED, REMOVED, SAME, word_difference


@pytest.mark.parametrize(
    ("was", "now", "pieces"),
    [
        ("a b c", "a b c", [(SAME, "a b c")]),
        ("a b c", "a x c", [(SAME, "a"), (REMOVED, " b"), (ADDED, " x"), (SAME, " c")]),
        ("", "new", [(ADDED, "new")]),
        ("gone", "", [(REMOVED, "gone")]),
        ("", "", []),
        ("20 euros.", "25 euros.", [(REMOVED, "20"), (ADDED, "25"), (SAME, " euros.")]),
        ("one\ntwo", "one two", [(SAME, "one two")]),
    ],
)
def test_words_are_the_same_removed_or_added(
    was: str, now: str, pieces: list[tuple[str, str]]
) -> None:
    assert [tuple(piece) for piece in word_difference(was, now).pieces] == pieces


@settings(max_examples=60, deadline=None)
@given(st.text("ab .\n<", max_size=60), st.text("ab .\n<", max_size=60))
def test_same_and_added_pieces_make_the_second_text(was: str, now: str) -> None:
    difference = word_difference(was, now)
    joined = "".join(piece.text for piece in difference.pieces if piece.kind != REMOVED)
    assert joined == now


def test_of_long_texts_the_beginning_is_compared() -> None:
    long = "word " * 5_000
    difference = word_difference(long, long + "end")
    assert not difference.compared_all
    assert difference.is_equal


def test_unlike_texts_share_nothing() -> None:
    assert word_difference("alpha beta", "gamma delta").shared == 0
