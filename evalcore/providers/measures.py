"""The numbers that providers say: in range, or the error of the call."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from evalcore.model.exchange import ProviderError
from evalcore.model.measures import is_amount, is_count, not_a_count, not_an_amount

METRICS: Final = "metrics"
"""The kind of the error."""

_ANSWERED: Final = 200


def counted(usage: Mapping[str, Any], name: str) -> int | None:
    """Return a number of tokens, None where it is not said, or NaN; raise `ProviderError`."""
    value = usage.get(name)
    if isinstance(value, float) and not isfinite(value):
        return None
    if isinstance(value, float) and value.is_integer() and is_amount(value):
        value = int(value)
    if value is None or is_count(value):
        return value
    raise ProviderError(METRICS, not_a_count(f"the answer's usage.{name}", value), _ANSWERED)


def charged(usage: Mapping[str, Any], name: str) -> float | None:
    """Return a cost, None where it is not said, or NaN; raise `ProviderError`."""
    value = usage.get(name)
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return None
    if is_amount(value):
        return float(value)
    raise ProviderError(METRICS, not_an_amount(f"the answer's usage.{name}", value), _ANSWERED)
