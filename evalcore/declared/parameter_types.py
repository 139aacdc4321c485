"""The types of parameters that several kinds of declared things have."""

from __future__ import annotations

import math
import re
import sys
from typing import Annotated, Any

from evalcore.declared.parameters import Rule


def _amount(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= sys.float_info.max:
        raise ValueError("a number, 0 or more")
    return value


def _share(value: Any) -> Any:
    if _amount(value) > 1:
        raise ValueError(f"a share from 0 to 1, not {value}")
    return value


def _level(value: Any) -> Any:
    if not 0 < _amount(value) < 1:
        raise ValueError(f"a level between 0 and 1, not {value}")
    return value


def _count(value: Any) -> Any:
    if _amount(value) != int(value) or value < 1:
        raise ValueError("a whole number, 1 or more")
    return int(value)


def _maybe_factor(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
        raise ValueError("a factor, 1 or more, or null")
    return value


def _maybe_share(value: Any) -> Any:
    return None if value is None else _share(value)


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def text_of(value: Any) -> Any:
    """Return the value if it is a text that is not empty; else raise `ValueError`."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("a text that UTF-8 can hold, without half of a surrogate pair")
    return value


def _reference(value: Any) -> Any:
    if not isinstance(value, str) or re.fullmatch(r"[^:\s]+:[^:\s]+", value) is None:
        raise ValueError("a function, written 'module:function'")
    return value


Amount = Annotated[float, Rule(_amount, {"type": "number", "minimum": 0})]
"""A number, 0 or more."""
Share = Annotated[float, Rule(_share, {"type": "number", "minimum": 0, "maximum": 1})]
"""A number from 0 to 1."""
MaybeFactor = Annotated[
    float | None, Rule(_maybe_factor, {"type": ["number", "null"], "minimum": 1})
]
"""A factor, 1 or more; null for none."""
MaybeShare = Annotated[
    float | None, Rule(_maybe_share, {"type": ["number", "null"], "minimum": 0, "maximum": 1})
]
"""A number from 0 to 1; null for none."""
Level = Annotated[
    float, Rule(_level, {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1})
]
"""A number strictly between 0 and 1."""
Count = Annotated[int, Rule(_count, {"type": "integer", "minimum": 1})]
"""A whole number, 1 or more."""
Flag = Annotated[bool, Rule(_flag, {"type": "boolean"})]
Text = Annotated[str, Rule(text_of, {"type": "string", "minLength": 1})]
MaybeText = Annotated[str | None, Rule(text_of, {"type": "string", "minLength": 1})]
"""A text that may be left out; a file does not write null."""
FUNCTION = Rule(_reference, {"type": "string", "pattern": "^[^:\\s]+:[^:\\s]+$"})
"""The reference of a function: `module:function`."""
