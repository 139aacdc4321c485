"""The patterns of `match`: Python's dialect, and an end in time."""

from __future__ import annotations

import pytest

from evalcore.patterns import PatternError, compile_pattern

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
}


@pytest.mark.parametrize(("pattern", "text", "groups"), FOUND.values(), ids=FOUND)
def test_a_pattern_finds_its_groups(
    pattern: str, text: str, groups: tuple[str | None, ...] | None
) -> None:
    match = compile_pattern(pattern).search(text, 1)
    assert (match and match.groups) == groups


@pytest.mark.parametrize("pattern", INVALID.values(), ids=INVALID)
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="pattern"):
        compile_pattern(pattern)


def test_a_search_that_takes_too_long_is_stopped() -> None:
    with pytest.raises(PatternError, match="took longer than 1 s"):
        compile_pattern("(?:(?:a{1,50}){1,50}){1,50}b").search("a" * 5_000, 1)
