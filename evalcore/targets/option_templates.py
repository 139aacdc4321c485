"""`{prompt}`, `{input}`, `{input.x}` and `{id}` in the texts of a target's options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from evalcore.errors import TargetError
from evalcore.targets.case_messages import Message, input_messages, json_text, prompt_of
from evalcore.targets.work import Work, with_attachments

PLACEHOLDER: Final = re.compile(r"\{(prompt|id|input(?:\.[^{}\s]+)?)\}")


def filled(template: str, work: Work) -> str:
    """Return the text with every placeholder replaced; what is not text is put in as JSON.

    Other braces stay. Raise `TargetError` for a part of the input that is not there.
    """
    return PLACEHOLDER.sub(lambda match: _as_text(value_of(match[1], work)), template)


def filled_value(template: Any, work: Work) -> Any:
    """Return JSON values with every text in them filled.

    A text that is one placeholder and nothing else becomes the value itself, of any type.
    """
    if isinstance(template, str):
        whole = PLACEHOLDER.fullmatch(template)
        return filled(template, work) if whole is None else value_of(whole[1], work)
    if isinstance(template, Mapping):
        return {key: filled_value(value, work) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [filled_value(value, work) for value in template]
    return template


def with_template(work: Work, template: str | None) -> Work:
    """Return the work with what `templated` returns as its messages and its prompt."""
    if template is None:
        return work
    messages = templated(work, template)
    return replace(work, messages=messages, prompt=prompt_of(messages))


def templated(work: Work, template: str | None) -> tuple[Message, ...]:
    """Return the case's messages, the last user message replaced by the filled template.

    A template that is one placeholder and nothing else, and stands for messages, becomes those.
    """
    if template is None:
        return work.messages
    value = filled_value(template, with_attachments(work))
    if isinstance(value, list | tuple):
        return input_messages(value, any_value=True)
    message = {"role": "user", "content": _as_text(value)}
    for position in range(len(work.messages) - 1, -1, -1):
        if work.messages[position]["role"] == "user":
            return (*work.messages[:position], message, *work.messages[position + 1 :])
    return (*work.messages, message)


def value_of(placeholder: str, work: Work) -> Any:
    """Return what a placeholder, written without its braces, stands for."""
    if placeholder == "prompt":
        return work.prompt
    if placeholder == "id":
        return work.case.id
    value = work.case.input
    for part in placeholder.split(".")[1:]:
        value = _part(value, part, placeholder)
    return value


def _part(value: Any, part: str, placeholder: str) -> Any:
    if isinstance(value, Mapping) and part in value:
        return value[part]
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if listed and part.isdecimal() and int(part) < len(value):
        return value[int(part)]
    keys = f"; it has {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""
    raise TargetError("input", f"{{{placeholder}}}: the case's input has no '{part}'{keys}")


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)
