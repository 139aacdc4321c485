"""An input or an expected output in any of its forms as an array of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcore.mistakes.foreign_text import json_text


def message_array(value: Any, role: str) -> list[Any]:
    """Return the messages that a value is; one that is none becomes a message of this role.

    A text and a mapping are the content as they are, any other value as JSON text; None is no
    message.
    """
    if value is None:
        return []
    if isinstance(value, list | tuple) and all(_is_message(each) for each in value):
        return list(value)
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    content = dict(value) if isinstance(value, Mapping) else json_text(value)
    return [{"role": role, "content": content}]


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and "role" in value
