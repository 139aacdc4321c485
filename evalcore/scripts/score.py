"""From what a test's statements gave to a score (docs/reference/script-suites.md)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from evalcore.expressions.engine import json_tree

_LONGEST = 80


class Scored(NamedTuple):
    """A score in [0, 1], and what has to be said of how it came about; `""` for nothing."""

    score: float
    warning: str = ""


def score_of(value: Any) -> Scored:
    """Return the score of a value: numbers and numeric text, clamped to [0, 1]; else 0."""
    if value is None:
        return Scored(0.0, "the test gave None; scored 0.0")
    number = _number(value)
    if number is None:
        return Scored(0.0, f"the test gave {_quoted(value)}, not a number; scored 0.0")
    if math.isnan(number):
        return Scored(0.0, "the test gave NaN; scored 0.0")
    if number < 0.0:
        return Scored(0.0, f"the test gave {_quoted(value)}, below 0; scored 0.0")
    if number > 1.0:
        return Scored(1.0, f"the test gave {_quoted(value)}, above 1; scored 1.0")
    return Scored(number + 0.0)  # -0.0 is 0.0


def _number(value: Any) -> float | None:
    if isinstance(value, bytes | bytearray | Mapping):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return None


def text_of(value: Any) -> str:
    """Return a value as text: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(json_tree(value), ensure_ascii=False)


def _quoted(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else text_of(value)
    text = " ".join(text.split())
    return f"{text[:_LONGEST]}…" if len(text) > _LONGEST else text
