"""Numbers that JSON does not have: NaN and infinite ones. orjson writes null for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def has_infinite(value: Any) -> bool:
    """Whether a JSON value has a number in it that is NaN or infinite."""
    if isinstance(value, Mapping):
        return any(map(has_infinite, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_infinite, value))
    return isinstance(value, float) and not math.isfinite(value)
