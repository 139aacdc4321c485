"""Plain patterns mean without translation what they mean with it."""

from __future__ import annotations

import re

import pytest
import regress
from hypothesis import assume, given
from hypothesis import strategies as st

from evalcore.patterns.bounded import compile_pattern
from evalcore.patterns.errors import PatternError
from evalcore.patterns.plain import plain_ecmascript, plain_python

atoms = st.sampled_from(
    [
        "a",
        "B",
        "k",
        "7",
        "_",
        " ",
        "/",
        "-",
        '"',
        r"\d",
        r"\w",
        r"\.",
        r"\$",
        r"\b",
        ".",
        r"\\",
        "s",
    ]
)
optional = st.tuples(atoms, st.sampled_from(["", "", "", "?"])).map(
    lambda pair: pair[0] if pair[0] == r"\b" else "".join(pair)
)
repeated = st.tuples(atoms.filter(lambda atom: atom != r"\b"), st.sampled_from(["+", "*", "+?"]))
patterns = st.builds(
    lambda start, before, middle, after, end: start + "".join([*before, middle, *after]) + end,
    st.sampled_from(["", "^"]),
    st.lists(optional, max_size=3),
    st.just("") | repeated.map("".join),
    st.lists(optional, max_size=3),
    st.sampled_from(["", "$"]),
)
texts = st.text(st.sampled_from('aABbkK\u017f\u0131s7_ /-".$\\\n\r\u2028é٣'), max_size=8)


@given(patterns, texts, st.sampled_from(["", "i"]))
def test_a_plain_pattern_matches_as_in_ecmascript(pattern: str, text: str, flags: str) -> None:
    if plain_ecmascript(pattern) is None:
        return
    # Without flag u neither is a word character or equal to `s` or `k` (ECMA-262, Canonicalize:
    # no character beyond ASCII becomes one of it); the oracle takes them.
    assume(not (flags and {"\u017f", "\u212a"} & set(text)))
    expected = regress.Regex(pattern, flags).find(text) is not None
    assert compile_pattern(pattern, flags, "ecmascript").is_found_in(text, 2.0) is expected


@pytest.mark.parametrize(
    ("pattern", "text"), [("s", "\u017f"), ("\u017f", "s"), ("k", "\u212a"), (r"\w", "\u017f")]
)
def test_no_character_beyond_ascii_is_equal_to_one_of_it(pattern: str, text: str) -> None:
    # As V8 has it; the oracle of the property above differs.
    assert not compile_pattern(pattern, "i", "ecmascript").is_found_in(text, 2.0)


@given(patterns, texts)
def test_a_plain_pattern_is_python_s_own(pattern: str, text: str) -> None:
    expected = re.search(pattern, text) is not None
    assert compile_pattern(pattern, "", "python").is_found_in(text, 2.0) is expected


@pytest.mark.parametrize(
    "pattern", [r'"id": \d+', r"^Dear .*,$", r"https?://example\.com", r"order-\d+\b", "plain"]
)
def test_what_people_write_is_plain(pattern: str) -> None:
    assert plain_python(pattern) is not None


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+",
        "a++",
        "a+?+",
        "a+b+",
        "[a-z]",
        "a{2}",
        "(?i)a",
        r"\s",
        r"\1",
        "a|b",
        "a???",
        "*a",
        "é",
        "a?a?a?a?",
        "a$b",
        "a" * 2000,
        r"\b+",
    ],
)
def test_anything_else_is_not(pattern: str) -> None:
    assert plain_python(pattern) is None


def test_a_plain_pattern_in_a_long_text_is_still_bounded_in_time() -> None:
    pattern = compile_pattern("a.*b", "", "ecmascript")
    with pytest.raises(PatternError, match=r"took longer than 0\.01 s"):
        pattern.is_found_in("a" * 200_000, 0.01)
