"""The patterns of `match`: Python's dialect, and an end in time."""

from __future__ import annotations

import pytest

from evalcore.expressions.engine import ExpressionError, ExpressionSyntaxError
from evalcore.scripts.statements import compile_match_pattern, match_groups

FOUND: dict[str, tuple[str, str, tuple[str | None, ...] | None]] = {
    "groups": (r"(\d+)-(\w+)", "a 12-bc d", ("12-bc", "12", "bc")),
    "group that took no part": ("(a)|(b)", "b", ("b", None, "b")),
    "no groups": ("b+", "abba", ("bb",)),
    "no match": ("x", "abc", None),
    "brace that is no repeat": ("a{e<=1}", "ab", None),
    "brace that is no repeat, found": ("a{e<=1}", "a{e<=1}", ("a{e<=1}",)),
    "set with a bracket": ("[[:alpha:]]", "a:", None),
    "ignoring case": ("(?i)YES", "oh yes", ("yes",)),
    "named group": ("(?P<n>y)", "y", ("y", "y")),
}
INVALID = {
    "unclosed": "(a",
    "unknown escape": r"\p{L}",
    "nothing to repeat": "*a",
    "too deep": "(" * 3000 + ")" * 3000,
    "too long": "a" * 20_000,
}


@pytest.mark.parametrize(("pattern", "text", "groups"), FOUND.values(), ids=FOUND)
def test_a_pattern_finds_its_groups(
    pattern: str, text: str, groups: tuple[str | None, ...] | None
) -> None:
    assert match_groups(compile_match_pattern(pattern), text) == groups


@pytest.mark.parametrize("pattern", INVALID.values(), ids=INVALID)
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ExpressionSyntaxError, match="pattern"):
        compile_match_pattern(pattern)


def test_a_search_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(ExpressionError) as stopped:
        match_groups(compile_match_pattern("(?:(?:a{1,50}){1,50}){1,50}b"), "a" * 5_000)
    assert stopped.value.kind == "LimitError"
