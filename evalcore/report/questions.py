"""What a case asks, as one line of a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from evalcore.mistakes.foreign_text import shorten

_MOST_CHARACTERS: Final = 240
# Keys under which inputs hold what is asked, the likeliest first.
_ASKING_KEYS: Final = ("question", "input", "prompt", "query", "message", "text", "content")


def question_of(case_input: Any) -> str | None:
    """Return the beginning of what a case asks, on one line; None without an input.

    Of a conversation that is its last message of the user, of an object the text under a usual
    key, else the whole as JSON.
    """
    text = _question_text(case_input)
    return None if text is None else shorten(" ".join(text.split()), _MOST_CHARACTERS)


def _question_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        texts = (value.get(key) for key in _ASKING_KEYS)
        text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
        if text is not None:
            return text
        if isinstance(value.get("messages"), list):
            return _question_text(value["messages"])
    if isinstance(value, Sequence) and value and all(isinstance(each, Mapping) for each in value):
        users = [each for each in value if each.get("role") == "user"]
        content = (users or list(value))[-1].get("content")
        if content is not None:
            return _content_text(content)
    return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS, default=str).decode()


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, Mapping) else part for part in content)
        return " ".join(part for part in parts if isinstance(part, str))
    return orjson.dumps(content, option=orjson.OPT_NON_STR_KEYS, default=str).decode()
