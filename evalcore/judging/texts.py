"""A case's input and its expected output as the texts that a judge is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def conversation_text(value: Any) -> str:
    """Return an input as text: a single message as it is, several each with its role."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if not _is_messages(value):
        return json_text(value)
    if len(value) == 1:
        return content_text(value[0].get("content"))
    return "\n\n".join(
        f"[{message.get('role')}]\n{content_text(message.get('content'))}" for message in value
    )


def expected_text(value: Any) -> str:
    """Return an expected output as text: of messages the last one's content."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if _is_messages(value):
        return content_text(value[-1].get("content"))
    return json_text(value)


def content_text(content: Any) -> str:
    """Return a message's content as text; files and images stand as their names."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list | tuple) and all(isinstance(part, Mapping) for part in content):
        return "\n".join(
            str(part.get("value", part.get("text", "")))
            if part.get("type") == "text"
            else f"[{part.get('type')}: {part.get('value')}]"
            for part in content
        )
    return json_text(content)


def json_text(value: Any) -> str:
    """Return the value as JSON text, or in Python's words where JSON has none for it."""
    plain = dict(value) if isinstance(value, Mapping) else value
    try:
        return json.dumps(plain, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def _is_messages(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and bool(value)
        and all(isinstance(message, Mapping) and "role" in message for message in value)
    )
