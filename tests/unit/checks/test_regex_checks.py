from __future__ import annotations

import pytest

from evalcore.model.assertion import Outcome
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
    "no match": ("x", "", "abc", FAILED),
    "flag as a letter": ("hello", "i", "HELLO", PASSED),
    "unicode digits": (r"^\d$", "", "٣", PASSED),
    "ascii": (r"^\d$", "a", "٣", FAILED),
    "the end may be before a last line feed": ("b$", "", "ab\n", PASSED),
    "named group": (r"(?P<y>a)(?P=y)", "", "aa", PASSED),
    "fuzzy braces are literal": ("(?:ab){e<=1}", "", "ax", FAILED),
    "ECMAScript's named group": ("(?<y>a)", "", "a", ERROR),
    "properties are another dialect's": (r"\p{L}", "", "a", ERROR),
    "unknown flag": ("a", "g", "a", ERROR),
    "huge repeat": ("a{99999999999}", "", "a", ERROR),
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
    assert text == "invalid pattern 'a(b': Unbalanced parenthesis"
    text = message("regex", "", pattern="a(b", flags="", dialect="python")
    assert text.endswith("unterminated subpattern at position 1")
