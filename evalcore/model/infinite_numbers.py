"""Numbers that JSON does not have: NaN and infinite ones. orjson writes null for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def has_infinite(value: Any) -> bool:
    """Whether a JSON value has a number in it that is NaN or infinite."""
    if isinstance(value, Mapping):
        return any(map(has_infinite, value.values()))
    if isinstance(value, list | tuple):
        return any(map(has_infinite, value))
    if isinstance(value, float):
        return not math.isfinite(value)
    if hasattr(value, "model_dump"):  # a pydantic model
        return has_infinite(value.model_dump())
    if is_dataclass(value) and not isinstance(value, type):
        return any(has_infinite(getattr(value, field.name)) for field in fields(value))
    return False
