"""Patterns of the dialect `python` find what `re` finds, and end in time."""

from __future__ import annotations

import functools
import operator
import re
import unicodedata
from typing import Any

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcore.patterns.bounded import compile_pattern, compile_python
from evalcore.patterns.errors import PatternError
from evalcore.patterns.python import ends_soon, parse, translate


@pytest.mark.parametrize(
    ("pattern", "is_safe"),
    [
        ("refund", True),
        (r"\d{3}-\d{4}", True),
        ("risk: (High|Critical)", True),
        ("a.*b", False),
        ("(a|aa)+", False),
        ("(a?){60}", False),
        (r"(a+)\1", False),
    ],
)
def test_only_what_ends_soon_runs_without_a_time_limit(pattern: str, is_safe: bool) -> None:
    items, _ = parse(pattern, 0)
    assert ends_soon(items, 10_000) is is_safe


def test_a_least_number_of_empty_rounds_counts_on_short_texts_too() -> None:
    items, _ = parse("(a?){60}b", 0)
    assert not ends_soon(items, 0)


BASIC_PLANE = "".join(
    char for char in map(chr, range(0x10000)) if unicodedata.category(char) != "Cn"
)


@pytest.mark.parametrize("flags", [0, re.A, re.I, re.I | re.A])
@pytest.mark.parametrize(
    "pattern",
    [
        *[r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"[^\w-]", r"[\W\d]", r"[^\S\n]", r"[\wé]"],
        *["[g-t]", "[^A-Zß]", "[\u03b1-\u03c9]", "k", "[^s]", "i", "µ", "."],
    ],
)
def test_the_translation_takes_the_same_characters(pattern: str, flags: int) -> None:
    translated = translate(*parse(pattern, flags))
    assert regex.findall(translated, BASIC_PLANE, regex.V0) == re.findall(
        pattern, BASIC_PLANE, flags
    )


def test_too_many_least_repeats_are_refused_before_they_take_the_memory() -> None:
    items, flags = parse("((a{1000}){1000}){1000}", 0)
    with pytest.raises(PatternError, match="too many repeats"):
        translate(items, flags)


LETTERS = "abAB1_- \néÉßiIİ\u0131\u017fsµμ\x1c\u0301²٣{}<=&~"
ATOMS = st.sampled_from(
    [*map(re.escape, LETTERS), ".", "^", "$", "[a-z]", r"[^\W\d]", r"[\S\n]", r"[^é-]"]
    + [rf"\{letter}" for letter in "wWdDsSbBAZ1"]
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    openings = ["(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?-i:", "(?s:"]
    quantifiers = ["*", "+", "?", "{2}", "{0,2}", "*?", "++"]
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("{}|{}".format, inner, inner),
        st.builds("{}{})".format, st.sampled_from(openings), inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(quantifiers)),
    )


# (group 0 is the whole match)
Spans = tuple[tuple[int, int], tuple[str | None, ...]] | None


def matches_of(pattern: Any, text: str) -> list[Spans]:
    """Return what a pattern of `re`, of `regex` or of `evalcore` finds in the text."""
    found = [getattr(pattern, how)(text) for how in ("search", "match", "fullmatch")]
    return [None if m is None else (m.span(), (m[0], *m.groups())) for m in found]


@settings(max_examples=400, deadline=None)
@given(
    pattern=st.recursive(ATOMS, _grow, max_leaves=6),
    flags=st.sets(st.sampled_from("imsa")),
    texts=st.lists(st.text(st.sampled_from(LETTERS), max_size=6), min_size=4, max_size=8),
)
def test_a_pattern_finds_what_re_finds(pattern: str, flags: set[str], texts: list[str]) -> None:
    bits = functools.reduce(operator.or_, (re.RegexFlag[flag.upper()] for flag in flags), 0)
    try:
        original = re.compile(pattern, bits)
    except re.error:
        with pytest.raises(PatternError):
            compile_python(pattern, "".join(flags))
        return
    compiled = compile_python(pattern, "".join(flags))
    translated = regex.compile(translate(*parse(pattern, bits)), regex.V0)
    for text in texts:
        expected = matches_of(original, text)
        assert matches_of(translated, text) == expected, text
        by_us = [
            getattr(compiled, how)(text, timeout_s=2.0) for how in ("search", "match", "fullmatch")
        ]
        assert [None if m is None else tuple(m) for m in by_us] == expected, text


FOREIGN_SYNTAX = {
    "fuzzy": "(?:abc){e<=1}",
    "fuzzy set": "a{e<=1:[a-z]}",
    "POSIX class": "[[:alpha:]]",
    "set difference": "[[a-z]--[b]]",
    "set intersection": "[a-z&&[bc]]",
    "empty set item": "[]a]",
    "lone brace": "a{,x}",
    "bounded brace": "a{,2}",
    "possessive": "a*+b",
    "atomic": "(?>a|ab)c",
    "named character": r"\N{LATIN SMALL LETTER A}b",
    "conditional": "(a)?(?(1)b|c)",
    "comment": "a(?#b)c",
}
FOREIGN_TEXTS = ["abc", "abd", "ab", "a", "b", "c", "a:", "a]", "-]", "&]", "a{e<=1}", "aab", "ac"]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("pattern", FOREIGN_SYNTAX.values(), ids=FOREIGN_SYNTAX)
def test_the_regex_packages_own_syntax_does_not_leak(pattern: str) -> None:
    translated = regex.compile(translate(*parse(pattern, 0)), regex.V0)
    for text in FOREIGN_TEXTS:
        expected = matches_of(re.compile(pattern), text)
        assert matches_of(translated, text) == expected, text
        match = compile_python(pattern).search(text, 2.0)
        assert match == expected[0], text


REFUSED_BY_RE = {
    "property": r"\p{L}",
    "branch reset": "(?|(a)|(b))",
    "recursion": "a(?R)?b",
    "named list": r"\L<words>",
    "start of a word": r"\mfoo",
    "grapheme": r"\X",
    "keep": r"a\Kb",
    "ECMAScript's named group": "(?<y>a)",
    "lookbehind of any length": "(?<=a+)b",
    "repeated group name": "(?P<a>x)|(?P<a>y)",
    "partial fuzziness": "(?e)(a){e}",
    "unclosed": "(a",
}


@pytest.mark.parametrize("pattern", REFUSED_BY_RE.values(), ids=REFUSED_BY_RE)
def test_what_re_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"^invalid pattern "):
        compile_python(pattern)


def test_an_invalid_pattern_has_its_position() -> None:
    with pytest.raises(PatternError) as caught:
        compile_python("ab(c")
    assert caught.value.position == 2
    assert str(caught.value).startswith("invalid pattern 'ab(c': ")
    assert str(caught.value).endswith(" at position 2")


@pytest.mark.parametrize("method", ["is_found_in", "search", "match", "fullmatch"])
def test_every_search_is_stopped_when_time_is_up(method: str) -> None:
    pattern = compile_python("(a|a|aa)+$")
    with pytest.raises(PatternError, match=r"the search for '.*' took longer than 0.05 s"):
        getattr(pattern, method)("a" * 5000 + "!", timeout_s=0.05)


def test_a_pattern_may_have_to_match_the_whole_text() -> None:
    pattern = compile_python("a+|b")
    assert pattern.fullmatch("aa", 1.0) == ((0, 2), ("aa",))
    assert pattern.fullmatch("ab", 1.0) is None


def test_a_pattern_is_compiled_once() -> None:
    assert compile_pattern("a+", "", "python") is compile_pattern("a+", "", "python")
