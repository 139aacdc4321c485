from __future__ import annotations

import re
import unicodedata

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from evalcore.checks.regex import compile_pattern
from evalcore.model.assertion import Outcome
from evalcore.patterns import python as python_regex
from tests.unit.checks.checking import (
    ERROR,
    FAILED,
    PASSED,
    assertion,
    context,
    message,
    outcome,
    result,
)


def python_outcome(pattern: str, output: str, flags: str = "") -> Outcome:
    return outcome("regex", output, pattern=pattern, flags=flags, dialect="python")


CASES: dict[str, tuple[str, str, str, Outcome]] = {
    "searched anywhere": (r"\d{3}-\d{4}", "", "Call 555-1234 now", PASSED),
    "no match": ("x", "", "abc", FAILED),
    "inline flag": ("(?i)hello", "", "HELLO", PASSED),
    "flag as a letter": ("hello", "i", "HELLO", PASSED),
    "several letters": ("^b.$", "ims", "a\nB\n", PASSED),
    "the dot stops at a line feed": ("a.b", "", "a\nb", FAILED),
    "verbose": ("a  b # words", "x", "ab", PASSED),
    "unicode digits": (r"^\d$", "", "٣", PASSED),
    "ascii": (r"^\d$", "a", "٣", FAILED),
    "the end may be before a last line feed": ("b$", "", "ab\n", PASSED),
    "named group": (r"(?P<y>a)(?P=y)", "", "aa", PASSED),
    "fuzzy braces are literal": ("(?:ab){e<=1}", "", "ax", FAILED),
    "nested sets are literal": ("[[a-z]--[b]]", "", "b", FAILED),
    "invalid pattern": ("[invalid", "", "test", ERROR),
    "ECMAScript's named group": ("(?<y>a)", "", "a", ERROR),
    "properties are another dialect's": (r"\p{L}", "", "a", ERROR),
    "unknown flag": ("a", "g", "a", ERROR),
    "locale is for bytes": ("a", "l", "a", ERROR),
    "contradictory flags": ("a", "au", "a", ERROR),
    "huge repeat": ("a{99999999999}", "", "a", ERROR),
    "groups nested too deeply": ("(" * 5000 + ")" * 5000, "", "a", ERROR),
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(("pattern", "flags", "output", "expected"), CASES.values(), ids=CASES)
def test_python_dialect(pattern: str, flags: str, output: str, expected: Outcome) -> None:
    assert python_outcome(pattern, output, flags) is expected


@pytest.mark.parametrize("dialect", ["python", "ecmascript"])
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", r"(\w+\s?)+$", "(?:a|a?)+$"])
def test_a_search_without_end_is_an_error(pattern: str, dialect: str) -> None:
    params = {"pattern": pattern, "flags": "", "dialect": dialect}
    ended = result(
        assertion("regex", params), "a" * 5000 + "!", within=context(regex_timeout_s=0.05)
    )
    assert ended.outcome is ERROR
    assert "took longer than 0.05 s" in ended.message


def test_an_invalid_pattern_is_named_with_its_position() -> None:
    text = message("regex", "", pattern="a(b", flags="", dialect="ecmascript")
    assert text == "invalid pattern 'a(b': missing ')' for the group at position 1"


def test_a_long_text_is_searched_like_a_short_one() -> None:
    words = "word " * 20_000
    assert python_outcome(r"(\w+\s+)+needle$", words + "needle") is PASSED
    assert python_outcome(r"\w+@\w+\.\w+", words) is FAILED


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
    items, _ = python_regex.parse(pattern, 0)
    assert python_regex.ends_soon(items, 10_000) is is_safe


def test_a_least_number_of_empty_rounds_counts_on_short_texts_too() -> None:
    items, _ = python_regex.parse("(a?){60}b", 0)
    assert not python_regex.ends_soon(items, 0)


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
    translated = python_regex.translate(*python_regex.parse(pattern, flags))
    assert regex.findall(translated, BASIC_PLANE, regex.V0) == re.findall(
        pattern, BASIC_PLANE, flags
    )


def test_too_many_least_repeats_are_refused_before_they_take_the_memory() -> None:
    items, flags = python_regex.parse("((a{1000}){1000}){1000}", 0)
    with pytest.raises(python_regex.Untranslatable, match="too many repeats"):
        python_regex.translate(items, flags)


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


@settings(max_examples=400, deadline=None)
@given(
    pattern=st.recursive(ATOMS, _grow, max_leaves=6),
    flags=st.sets(st.sampled_from([re.I, re.M, re.S, re.A])),
    texts=st.lists(st.text(st.sampled_from(LETTERS), max_size=6), min_size=4, max_size=8),
)
def test_the_translation_finds_what_re_finds(
    pattern: str, flags: set[re.RegexFlag], texts: list[str]
) -> None:
    chosen = sum(int(flag) for flag in flags)
    try:
        original = re.compile(pattern, chosen)
    except re.error:
        return
    translated = regex.compile(
        python_regex.translate(*python_regex.parse(pattern, chosen)), regex.V0
    )
    for text in texts:
        assert bool(original.search(text)) is bool(translated.search(text)), text


def test_a_pattern_is_compiled_once() -> None:
    assert compile_pattern("a+", "", "python") is compile_pattern("a+", "", "python")
