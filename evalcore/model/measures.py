"""Which numbers from outside can be measures: counts and amounts that results can hold."""

from __future__ import annotations

from typing import Any, Final

from evalcore.model.evidence import TOKEN_PARTS, UNMEASURED, Metrics

LARGEST: Final = 2**63 - 1
"""The largest count; amounts (milliseconds, US dollars) are below it, too."""

COUNTS: Final = ("input_tokens", "output_tokens", *TOKEN_PARTS)
"""The measures that are whole numbers."""

_MEASURES: Final = ("latency_ms", "ttft_ms", "cost_usd", *COUNTS)
_COUNTS: Final = frozenset(COUNTS)
_TYPES: Final = {name: int if name in _COUNTS else float for name in _MEASURES}


def is_count(value: Any) -> bool:
    """Whether a value is a whole number from 0 to `LARGEST`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def is_amount(value: Any) -> bool:
    """Whether a value is a number of 0 or more, and neither infinite nor beyond `LARGEST`."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= LARGEST


def not_a_count(name: str, value: Any) -> str:
    """Say what is wrong with a value that is no count."""
    return f"{name} is {_excerpt(value)}, not a whole number from 0 to {LARGEST}"


def not_an_amount(name: str, value: Any) -> str:
    """Say what is wrong with a value that is no amount."""
    return f"{name} is {_excerpt(value)}, not a number from 0 to {LARGEST}"


def measure_problem(metrics: Metrics) -> str | None:
    """Return what is wrong with the first measure that cannot be stored; None if all can."""
    if metrics is UNMEASURED:
        return None
    for name in _MEASURES:
        value = getattr(metrics, name)
        if value is None or (type(value) is _TYPES[name] and 0 <= value <= LARGEST):
            continue
        if name in _COUNTS:
            if not is_count(value):
                return not_a_count(name, value)
        elif not is_amount(value):
            return not_an_amount(name, value)
    return None


def _excerpt(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**40 else "an integer"
    return text if len(text) <= 60 else f"{text[:60]}…"
