"""Secrets that an `http` block holds literally: a plan would store them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from evalcore.redaction.names import SECRET_FIELD, SECRET_HEADER, is_telling
from evalcore.redaction.redactor import PROCESS
from evalcore.trust.variables import REFERENCE
from evalcore.workflow.names import Loc, WorkflowMistake

_PLACEHOLDER: Final = re.compile(r"\{[^{}]*\}")
_SCHEME: Final = re.compile(r"(?:bearer|basic|token|digest)\s+", re.IGNORECASE)
_HOW: Final = (
    "holds a secret, which the plan would store; write it as ${{ NAME }} and set that variable"
)


def literal_secrets(
    headers: Mapping[str, str] | None, url: str, body: Any
) -> Iterator[WorkflowMistake]:
    """Yield a mistake in an `http` block for each literal where a key belongs.

    The process covers what it yields, so that no message shows it.
    """
    for name, value in (headers or {}).items():
        if SECRET_HEADER.search(name) and _is_secret(value):
            yield WorkflowMistake(("headers", name), f"header '{name}' {_HOW}")
    yield from _in_url(url)
    yield from _in_body(body, ("body",))


def _is_secret(value: Any) -> bool:
    """Whether a text holds more than references, placeholders and the name of a scheme."""
    if not isinstance(value, str):
        return False
    literal = _SCHEME.sub("", _PLACEHOLDER.sub("", REFERENCE.sub("", value))).strip()
    if not is_telling(literal):
        return False
    PROCESS.learn([value, literal])
    return True


def _in_url(url: str) -> Iterator[WorkflowMistake]:
    try:
        parts = urlsplit(REFERENCE.sub("", url))
        password = parts.password or ""
        query = parse_qsl(parts.query)
    except ValueError:
        return
    if _is_secret(password) or (password and not _PLACEHOLDER.search(password)):
        yield WorkflowMistake(("url",), f"url: the password {_HOW}")
    for name, value in query:
        if SECRET_FIELD.fullmatch(name) and _is_secret(value):
            yield WorkflowMistake(("url",), f"url: '{name}' {_HOW}")


def _in_body(body: Any, loc: Loc) -> Iterator[WorkflowMistake]:
    if isinstance(body, Mapping):
        for name, value in body.items():
            if SECRET_FIELD.fullmatch(str(name)) and _is_secret(value):
                yield WorkflowMistake((*loc, name), f"'{name}' {_HOW}")
            yield from _in_body(value, (*loc, name))
    elif isinstance(body, list):
        for number, value in enumerate(body):
            yield from _in_body(value, (*loc, number))
