"""The words of mistakes: suggestions, foreign values on one line."""

from __future__ import annotations

import re

import pytest

from evalcore.wording import (
    describe,
    describe_error,
    did_you_mean,
    known_names,
    one_line,
    quote_all,
    quote_pattern,
    suggest,
)


@pytest.mark.parametrize(
    ("word", "names", "hint"),
    [
        pytest.param("contian", ["contains", "cost"], " Did you mean 'contains'?", id="near"),
        pytest.param("MIN-SCORE", ["min_score"], " Did you mean 'min_score'?", id="spelling"),
        pytest.param("xyzzy", ["b", "a", "b"], " Known: a, b.", id="far"),
        pytest.param("xyzzy", [], "", id="no names"),
        pytest.param(3, ["a"], " Known: a.", id="no text"),
    ],
)
def test_a_suggestion_is_the_nearest_name_or_the_sorted_list(
    word: object, names: list[str], hint: str
) -> None:
    assert suggest(word, names) == hint


def test_a_long_list_of_names_is_cut_and_counted() -> None:
    assert suggest("xyzzy", ["a", "b", "c"], most=1) == " Known: a and 2 more."
    assert known_names([]) == "There is none."


def test_nothing_is_suggested_if_no_name_is_near() -> None:
    assert did_you_mean("xyzzy", ["contains"]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "the number 3"),
        ("a\n b", "'a b'"),
        ("x" * 50, f"'{'x' * 40}…'"),
        ((1,), "a list"),
        ({}, "a mapping"),
    ],
)
def test_a_foreign_value_is_described_in_a_few_words(value: object, text: str) -> None:
    assert describe(value) == text


def test_a_text_becomes_one_line_of_bounded_length() -> None:
    assert one_line(" a \n\t b ") == "a b"
    assert one_line("x" * 20, 10) == "x" * 9 + "…"


def test_of_many_texts_the_first_five_are_quoted() -> None:
    assert quote_all(list("abcdefg")) == "'a', 'b', 'c', 'd', 'e' and 2 more"


def test_an_error_without_a_message_is_described_by_its_type() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise ValueError

    assert describe_error(BrokenError()) == "BrokenError"
    assert describe_error(ValueError("a\nb")) == "ValueError: a b"


@pytest.mark.parametrize(
    ("pattern", "shown", "text"),
    [
        (r"\d+ days", r"'\d+ days'", "30 days"),
        ("a\nb", r"'a\nb'", "a\nb"),
        ("it's", '"it\'s"', "it's"),
        (r"\\", r"'\\'", "\\"),
    ],
    ids=["class", "line end", "quote", "backslash"],
)
def test_a_pattern_is_quoted_as_written_and_means_the_same(
    pattern: str, shown: str, text: str
) -> None:
    assert quote_pattern(pattern) == shown
    assert re.fullmatch(shown[1:-1], text)
    assert re.fullmatch(pattern, text)
