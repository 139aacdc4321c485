from __future__ import annotations

from typing import Any

import pytest

from evalcore.checks.text import ECMASCRIPT_TRIMMED
from tests.unit.checks.checking import FAILED, PASSED, message, outcome


def test_trimmed_are_exactly_ecmascripts_white_space_and_line_terminators() -> None:
    expected = [0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0xA0, 0x1680, *range(0x2000, 0x200B)]
    expected += [0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0xFEFF]
    assert [ord(char) for char in ECMASCRIPT_TRIMMED] == expected


@pytest.mark.parametrize("char", ["\x1c", "\x1f", "\x85", "\u200b", "\u180e"])
def test_what_only_python_trims_stays(char: str) -> None:
    assert outcome("equals", f"{char}Hi", value="Hi", trim="ecmascript") is FAILED


def test_every_one_of_no_values_is_there() -> None:
    assert outcome("contains-all", "abc", values=[], fold=False) is PASSED


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
