"""Values of users' functions: copies of what they are given, JSON values of what they return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, time
from enum import Enum
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


def plain_value(value: Any) -> Any:
    """Return a value with the JSON form of the models and dataclasses in it.

    Pydantic's models and dataclasses are mappings, members of an enumeration their values, dates
    and times texts of ISO 8601. What has no such form stays as it is.
    """
    if isinstance(value, Enum):
        return plain_value(value.value)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {key: plain_value(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(member) for member in value]
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, type):
        return value
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {each.name: plain_value(getattr(value, each.name)) for each in fields(value)}
    return value
