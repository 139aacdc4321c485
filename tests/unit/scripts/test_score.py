"""From the value of a test to its score."""

from __future__ import annotations

import math
from typing import Any

import pytest

from evalcore.scripts.score import score_of, text_of

SCORES: dict[str, tuple[Any, float, bool]] = {
    "a number": (0.25, 0.25, False),
    "zero": (0, 0.0, False),
    "true": (True, 1.0, False),
    "false": (False, 0.0, False),
    "text": ("0.7", 0.7, False),
    "text with spaces": (" 0.7\n", 0.7, False),
    "an exponent": ("1e-3", 0.001, False),
    "none": (None, 0.0, True),
    "words": ("good", 0.0, True),
    "no text": ("", 0.0, True),
    "a list": ([1], 0.0, True),
    "a mapping": ({"score": 1}, 0.0, True),
    "not a number": (math.nan, 0.0, True),
    "text that is not a number": ("nan", 0.0, True),
    "below": (-0.1, 0.0, True),
    "above": (1.01, 1.0, True),
    "infinite": (math.inf, 1.0, True),
    "negative infinite": (-math.inf, 0.0, True),
    "infinite as text": ("-inf", 0.0, True),
    "larger than any float": (10**400, 1.0, True),
}


@pytest.mark.parametrize(("value", "score", "warned"), SCORES.values(), ids=SCORES)
def test_a_value_gives_a_score(value: Any, score: float, warned: bool) -> None:
    found = score_of(value)

    assert (found.score, bool(found.warning)) == (score, warned)


def test_a_value_as_text_is_the_same_in_every_process() -> None:
    value = {"set": {"b", "a"}, "nan": math.nan, "tuple": (1, None)}

    assert text_of(value) == '{"set": ["a", "b"], "nan": "nan", "tuple": [1, null]}'
