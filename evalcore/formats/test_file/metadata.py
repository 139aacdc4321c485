"""The metadata of a test, with the suite's below it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged_metadata(own: Mapping[str, Any], suite: Mapping[str, Any]) -> dict[str, Any]:
    """Return a test's metadata with the suite's below it.

    Mappings are merged, lists have the suite's members first, each once; else the test's value.
    """
    merged = dict(own)
    for key, value in suite.items():
        mine = merged.get(key)
        if isinstance(value, Mapping) and isinstance(mine, Mapping):
            merged[key] = merged_metadata(mine, value)
        elif isinstance(value, list) and isinstance(mine, list):
            merged[key] = [*value, *(member for member in mine if member not in value)]
        elif key not in merged:
            merged[key] = value
    return merged
