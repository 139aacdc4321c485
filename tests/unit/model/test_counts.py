"""Counts in messages."""

from __future__ import annotations

import pytest

from evalcore.wording import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "case", "0 cases"),
        (1, "cluster", "1 cluster"),
        (2, "more cluster", "2 more clusters"),
        (1, "reply", "1 reply"),
        (3, "reply", "3 replies"),
    ],
)
def test_a_count_has_the_noun_in_its_number(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
