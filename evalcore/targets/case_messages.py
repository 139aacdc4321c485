"""A case's input as messages, and the prompt in them (docs/reference/test-files.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from evalcore.judging.prompts import plain_messages

Message = Mapping[str, Any]

_ROLES: Final = ("system", "user", "assistant", "tool")
_SEGMENTS: Final = ("text", "file", "image")


def input_messages(case_input: Any, *, any_value: bool) -> tuple[Message, ...]:
    """Return the messages of a case's input; raise `ValueError` as `messages_of` does.

    Where the input may be `any_value`, a list that is no messages is one user message of its JSON.
    """
    try:
        return messages_of(case_input)
    except ValueError:
        if not any_value:
            raise
        return messages_of(json_text(case_input))


def messages_of(case_input: Any) -> tuple[Message, ...]:
    """Return the messages of a case's input, each with `role` and `content`.

    A string is one user message, an array is taken as messages (further keys of a message stay),
    any other JSON value is one user message that holds its JSON, None is no message. Raise
    `ValueError` that says which message is misshapen.
    """
    if case_input is None:
        return ()
    if isinstance(case_input, str):
        return ({"role": "user", "content": case_input},)
    if not isinstance(case_input, list | tuple):
        return ({"role": "user", "content": json_text(case_input)},)
    if not case_input:
        raise ValueError("an array of messages must not be empty")
    case_input = plain_messages(case_input)
    for position, message in enumerate(case_input):
        problem = _problem(message)
        if problem is not None:
            raise ValueError(f"message {position}: {problem}")
    return tuple(case_input)


def prompt_of(messages: tuple[Message, ...]) -> str:
    """Return the text of the last user message, "" if there is none.

    Segments stand on lines of their own, a file or an image as `[file: NAME]`.
    """
    for message in reversed(messages):
        if message["role"] == "user":
            return _text_of(message["content"])
    return ""


def json_text(value: Any) -> str:
    """Return `value` as JSON text, in the order of its keys, characters unescaped.

    Raise `ValueError` or `TypeError` for what JSON cannot hold (NaN, foreign objects).
    """
    plain = dict(value) if isinstance(value, Mapping) else value
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        segment["value"]
        if segment["type"] == "text"
        else f"[{segment['type']}: {segment['value']}]"
        for segment in content
    )


def _problem(message: Any) -> str | None:
    if not isinstance(message, Mapping):
        return "it must be a mapping with 'role' and 'content'"
    role, content = message.get("role"), message.get("content")
    if role not in _ROLES:
        return f"role must be one of {', '.join(_ROLES)}, not {role!r}"
    if isinstance(content, str):
        return None
    if not isinstance(content, list | tuple) or not content:
        return "content must be a string or a list of segments {type, value}"
    for position, segment in enumerate(content):
        if not isinstance(segment, Mapping) or segment.get("type") not in _SEGMENTS:
            return f"content[{position}].type must be one of {', '.join(_SEGMENTS)}"
        if not isinstance(segment.get("value"), str):
            return f"content[{position}].value must be a string"
    return None
