"""Keys of a mapping that are one key in JSON, such as 1 and '1': one value would be lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


def has_equal_keys(value: Any) -> bool:
    """Whether a mapping in a JSON value has two keys that are the same text in JSON."""
    if isinstance(value, Mapping):
        keys = orjson.dumps(dict.fromkeys(value), option=orjson.OPT_NON_STR_KEYS)
        return len(orjson.loads(keys)) < len(value) or any(map(has_equal_keys, value.values()))
    return isinstance(value, list | tuple) and any(map(has_equal_keys, value))
