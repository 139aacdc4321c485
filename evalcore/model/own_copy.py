"""Copies of JSON values for functions of users, which may change what they are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def own_copy(value: Any) -> Any:
    """Return a JSON value with collections of its own.

    The items of a case share the values of the plan, the checks of an item its evidence.
    """
    if isinstance(value, Mapping):
        return {key: own_copy(member) for key, member in value.items()}
    if isinstance(value, list):
        return [own_copy(member) for member in value]
    return tuple(map(own_copy, value)) if isinstance(value, tuple) else value
