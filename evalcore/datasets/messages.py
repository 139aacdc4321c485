"""Inputs as cases have them: text, a mapping, or messages in the one form that files have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_ROLES: Final = {
    "developer": "system",
    "human": "user",
    "model": "assistant",
    "ai": "assistant",
    "function": "tool",
}
_KNOWN_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})


def case_input(value: Any) -> Any:
    """Return an input as a case has it; messages of other dialects are translated.

    A list that is no conversation, a number or null becomes `{"value": …}`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    messages = [case_message(each) for each in value] if isinstance(value, list) else []
    if not messages or any(message is None for message in messages):
        return {"value": value}
    return messages


def case_message(message: Any) -> dict[str, Any] | None:
    """Return a message as files have it: text or segments as content; None if it is none."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        return None
    role = _ROLES.get(message["role"], message["role"])
    if role not in _KNOWN_ROLES:
        return None
    content = message.get("content")
    if isinstance(content, list):
        texts = [_text_of_segment(segment) for segment in content]
        content = "\n".join(text for text in texts if text)
    elif content is not None and not isinstance(content, str | Mapping):
        content = json.dumps(content, ensure_ascii=False)
    if content is None and not message.get("tool_calls"):
        content = ""
    named = {name: member for name, member in message.items() if name not in {"role", "content"}}
    return {"role": role, "content": content, **named}


def answer_text(value: Any) -> str:
    """Return an output as a fixture's text: text as it is, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text_of_segment(segment: Any) -> str:
    if isinstance(segment, str):
        return segment
    if isinstance(segment, Mapping):
        text = segment.get("text", segment.get("value"))
        if isinstance(text, str) and segment.get("type", "text") in {"text", "input_text"}:
            return text
        return f"[{segment.get('type', 'segment')}]"
    return json.dumps(segment, ensure_ascii=False)
