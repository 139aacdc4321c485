"""A case's input and its expected output as the texts that a judge is shown.

Messages may be written as model APIs write them: `plain_messages` gives them one form.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def plain_messages(value: Any) -> Any:
    """Return messages with the roles and segments `{type: text|image|file, value}` of test files.

    The role `developer` is `system`, the content null of the assistant is empty, and parts of
    OpenAI's and Anthropic's APIs (`text`, `image_url`, `input_text`, …) are segments. What is no
    message, or no such part, stays as it is.
    """
    if isinstance(value, list | tuple):
        return [_plain_message(message) for message in value]
    return _plain_message(value)


def _plain_message(message: Any) -> Any:
    if not isinstance(message, Mapping) or "role" not in message:
        return message
    role = "system" if message["role"] == "developer" else message["role"]
    content = message.get("content")
    if content is None and role == "assistant":
        content = ""
    elif isinstance(content, list | tuple):
        content = [_plain_segment(part) for part in content]
    same = role == message["role"] and content == message.get("content")
    return message if same else {**message, "role": role, "content": content}


def _plain_segment(part: Any) -> Any:
    """Return a part of a message's content as a segment."""
    if isinstance(part, str):
        return {"type": "text", "value": part}
    if not isinstance(part, Mapping) or "value" in part:
        return part
    match part.get("type"):
        case "text" | "input_text" | "output_text" if isinstance(part.get("text"), str):
            return {"type": "text", "value": part["text"]}
        case "refusal" if isinstance(part.get("refusal"), str):
            return {"type": "text", "value": part["refusal"]}
        case "image_url" | "input_image":
            image = part.get("image_url")
            url = image.get("url") if isinstance(image, Mapping) else image
            return {"type": "image", "value": url} if isinstance(url, str) else part
        case "image" if isinstance(part.get("source"), Mapping):
            source = part["source"]
            if source.get("type") == "base64":
                data = f"data:{source.get('media_type')};base64,{source.get('data')}"
                return {"type": "image", "value": data}
            url = source.get("url")
            return {"type": "image", "value": url} if isinstance(url, str) else part
        case "file" if isinstance(part.get("file"), Mapping):
            data = part["file"].get("file_data")
            return {"type": "file", "value": data} if isinstance(data, str) else part
        case _:
            return part


def images_of(value: Any) -> list[Mapping[str, Any]]:
    """Return the images in the messages of a case's input, as segments."""
    messages = plain_messages(value)
    return [
        segment
        for message in (messages if _is_messages(messages) else ())
        for segment in (message["content"] if isinstance(message.get("content"), list) else ())
        if isinstance(segment, Mapping) and segment.get("type") == "image"
    ]


def conversation_text(value: Any) -> str:
    """Return an input as text: a single message as it is, several each with its role."""
    value = plain_messages(value)
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
    value = plain_messages(value)
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
            else f"[{part.get('type')}: {_shown_address(part.get('value'))}]"
            for part in content
        )
    return json_text(content)


def _shown_address(value: Any) -> Any:
    """Return an address; of data in it, what they are."""
    is_data = isinstance(value, str) and value.startswith("data:")
    return value.partition(",")[0] + ",…" if is_data else value


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
