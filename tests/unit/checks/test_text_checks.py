from __future__ import annotations

from typing import Any

import pytest

from evalcore.checks.text import ECMASCRIPT_TRIMMED
from evalcore.model.assertion import Outcome
from tests.unit.checks.checking import FAILED, PASSED, message, outcome

CONTAINS = {
    "a substring": ("contains", "Hello world", {"value": "lo w"}, PASSED),
    "other case": ("contains", "hello", {"value": "HELLO"}, FAILED),
    "an empty value": ("contains", "", {"value": ""}, PASSED),
    "untrimmed": ("contains", "a", {"value": "a "}, FAILED),
    "a non-breaking space is no space": ("contains", "a\xa0b", {"value": "a b"}, FAILED),
    "any: one is there": ("contains-any", "Hello", {"values": ["x", "ell"]}, PASSED),
    "any: none is there": ("contains-any", "Hello", {"values": ["x", "y"]}, FAILED),
    "any: no values": ("contains-any", "Hello", {"values": []}, FAILED),
    "all: every one is there": ("contains-all", "abc", {"values": ["c", "a"]}, PASSED),
    "all: one is missing": ("contains-all", "abc", {"values": ["a", "z"]}, FAILED),
    "all: no values": ("contains-all", "abc", {"values": []}, PASSED),
}
FOLDED = {
    "both sides": ("contains", "hello", {"value": "HELLO"}, PASSED),
    "lower case is not case folding": ("contains", "straße", {"value": "STRASSE"}, FAILED),
    "dotted capital i": ("contains", "İstanbul", {"value": "istanbul"}, FAILED),
    "any": ("contains-any", "HeLLo", {"values": ["x", "hEll"]}, PASSED),
    "all": ("contains-all", "ABC", {"values": ["a", "C"]}, PASSED),
    "all: one is missing": ("contains-all", "ABC", {"values": ["a", "z"]}, FAILED),
}


@pytest.mark.parametrize(("check", "output", "params", "expected"), CONTAINS.values(), ids=CONTAINS)
def test_contains_looks_at_the_raw_text(
    check: str, output: str, params: dict[str, Any], expected: Outcome
) -> None:
    assert outcome(check, output, fold=False, **params) is expected


@pytest.mark.parametrize(("check", "output", "params", "expected"), FOLDED.values(), ids=FOLDED)
def test_fold_lower_cases_both_sides(
    check: str, output: str, params: dict[str, Any], expected: Outcome
) -> None:
    assert outcome(check, output, fold=True, **params) is expected


@pytest.mark.parametrize(
    ("check", "output", "value", "expected"),
    [
        ("starts-with", "Hello", "He", PASSED),
        ("starts-with", " Hello", "He", FAILED),
        ("starts-with", "Hello", "he", FAILED),
        ("ends-with", "bye.", "e.", PASSED),
        ("ends-with", "bye.\n", "e.", FAILED),
        ("equals", "approved", "approved", PASSED),
        ("equals", "approved\n", "approved", FAILED),
        ("equals", "", "", PASSED),
    ],
)
def test_without_trim_every_character_counts(
    check: str, output: str, value: str, expected: Outcome
) -> None:
    assert outcome(check, output, value=value, trim=None) is expected


@pytest.mark.parametrize(
    ("check", "output", "value"),
    [
        ("starts-with", "  \nDear User", "Dear\t"),
        ("ends-with", "good bye.", "\n bye. "),
        ("equals", " Hi\u2028", "\ufeffHi"),
        ("equals", "", " "),
    ],
)
def test_trim_applies_to_both_sides(check: str, output: str, value: str) -> None:
    assert outcome(check, output, value=value, trim="ecmascript") is PASSED


def test_trimmed_are_exactly_ecmascripts_white_space_and_line_terminators() -> None:
    expected = [0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B)]
    expected += [0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
    assert [ord(char) for char in ECMASCRIPT_TRIMMED] == expected


@pytest.mark.parametrize("char", ["\x1c", "\x1f", "\x85", "\u200b", "\u180e"])
def test_what_only_python_trims_stays(char: str) -> None:
    assert outcome("equals", f"{char}Hi", value="Hi", trim="ecmascript") is FAILED


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (3, 3, PASSED),
        (None, None, PASSED),
        (4, None, FAILED),
        (None, 2, FAILED),
        (0, 3, PASSED),
        (3, None, PASSED),
    ],
)
def test_word_count_bounds_are_inclusive(
    low: int | None, high: int | None, expected: Outcome
) -> None:
    assert outcome("word-count", " one   two\n\tthree ", min=low, max=high) is expected


@pytest.mark.parametrize(
    ("check", "params", "expected"),
    [
        ("contains", {"value": "refund", "fold": False}, "does not contain 'refund'"),
        ("contains-any", {"values": ["q", "y"], "fold": False}, "contains none of 'q', 'y'"),
        ("contains-all", {"values": ["text", "y"], "fold": False}, "does not contain 'y'"),
        ("starts-with", {"value": "x", "trim": None}, "does not start with 'x'"),
        ("ends-with", {"value": "x", "trim": None}, "does not end with 'x'"),
        ("equals", {"value": "x", "trim": None}, "is not 'x'"),
        ("word-count", {"min": 3, "max": None}, "2 words, fewer than 3"),
        ("word-count", {"min": None, "max": 1}, "2 words, more than 1"),
    ],
)
def test_a_failure_says_what_is_missing(check: str, params: dict[str, Any], expected: str) -> None:
    assert message(check, "some text", **params) == expected


def test_a_long_value_is_cut_in_the_message() -> None:
    text = message("contains", "", value="x" * 1000, fold=False)
    assert len(text) < 120
    assert "…" in text
