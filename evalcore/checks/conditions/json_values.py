"""Equality and containment of JSON values: typed, deep, without `reasoning___` keys."""

from __future__ import annotations

from typing import Any, Final

REASONING: Final = "reasoning___"


def without_reasoning(value: Any) -> Any:
    """Return the value without keys that begin with `reasoning___`, at any depth."""
    if isinstance(value, dict):
        return {
            key: without_reasoning(below)
            for key, below in value.items()
            if not key.startswith(REASONING)
        }
    return [without_reasoning(element) for element in value] if isinstance(value, list) else value


def equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same: true is not 1, 1 is 1.0, the order of lists counts."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(equal(below, right[key]) for key, below in left.items())
        )
    if isinstance(left, list):
        return isinstance(right, list) and len(left) == len(right) and all(map(equal, left, right))
    return not isinstance(right, dict | list) and bool(left == right)


def contains_object(value: Any, expected: Any) -> bool:
    """Whether every key of `expected` is in `value` with a value that contains it, recursively.

    Lists and scalars inside contain nothing but what equals them.
    """
    if not isinstance(expected, dict):
        return equal(value, expected)
    return isinstance(value, dict) and all(
        key in value and contains_object(value[key], below) for key, below in expected.items()
    )
