"""Several tests at once: Holm for gates."""

from __future__ import annotations

from collections.abc import Sequence

from evalcore.model.tolerance import is_below


def holm(tests: Sequence[tuple[float, int]], alpha: float) -> list[bool]:
    """Return which of the tests Holm's step-down rejects at `alpha`, all of them together.

    A test is its p and how many cases share it; the order of the answers is theirs.
    """
    left = sum(count for _, count in tests)
    rejected = [False] * len(tests)
    for index in sorted(range(len(tests)), key=lambda index: tests[index][0]):
        p, count = tests[index]
        # Equal ones fall together: the last of them meets the mildest bound.
        if is_below(alpha / left, p):
            break
        rejected[index] = True
        left -= count
    return rejected
