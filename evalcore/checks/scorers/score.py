"""What a scorer gives: a value in [0, 1], and what it was made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple

import orjson

LARGEST_RAW_BYTES: Final = 64 * 1024


class Score(NamedTuple):
    """One measurement. `value` is in [0, 1], higher is better; None where nothing was measured.

    `raw_value` is the measured quantity itself, a JSON value. `error` says why there is no value.
    """

    name: str
    value: float | None
    raw_value: Any = None
    error: str | None = None

    def row(self) -> dict[str, Any]:
        """Return the fields of a result row's `scores`."""
        row: dict[str, Any] = {"name": self.name, "value": self.value, "raw": self.raw_value}
        if self.error is not None:
            row["error"] = self.error
        return row


def json_raw(raw: Any) -> Any:
    """Return a raw value as the JSON value that a row holds; of a dataclass its fields.

    Raises `ValueError` for what JSON does not have (NaN, an object, an integer of more than 64
    bits) and for more than 64 KiB.
    """
    try:
        value = json.loads(json.dumps(raw, allow_nan=False, default=_plain))
        size = len(orjson.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"the raw value is no JSON value: {reason}") from error
    if size > LARGEST_RAW_BYTES:
        raise ValueError(f"the raw value has {size} bytes as JSON, at most {LARGEST_RAW_BYTES}")
    return value


def _plain(value: Any) -> Any:
    """Return what a mapping or a dataclass, such as the artifact, is in JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def stored_raw(raw: Any) -> Any:
    """Return the raw value of a row: JSON text, or a number in rows of older versions."""
    return orjson.loads(raw) if isinstance(raw, str) else raw


def linear(amount: float, ideal: float, most: float) -> float:
    """Return 1 up to `ideal`, 0 from `most` on, linear between (docs/reference/suites.md)."""
    if amount <= ideal:
        return 1.0
    if amount >= most:
        return 0.0
    return 1.0 - (amount - ideal) / (most - ideal)
