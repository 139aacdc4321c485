"""`http`: one request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

from evalcore.model.exchange import Endpoint, Request
from evalcore.workflow.context import Context
from evalcore.workflow.definition import Block
from evalcore.workflow.failure import BlockError
from evalcore.workflow.values import parsed

_SECRET: Final = re.compile("auth|cookie|key|secret|token|password", re.IGNORECASE)
_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{[^{}\s\"':,]+\}")


async def run(block: Block, context: Context) -> Any:
    """Return the body of the answer: a mapping or list if it is JSON of one, else its text."""
    url = _url(block, context)
    headers = {
        name: context.fill(str(value), f"headers.{name}")
        for name, value in (block.fields.get("headers") or {}).items()
    }
    body = _body(block, context)
    method = block.text("method", "GET" if body is None else "POST").upper()
    secret = {name: value for name, value in headers.items() if _SECRET.search(name)}
    parameters: dict[str, Any] = {
        "method": method,
        "url": url,
        "headers": {name: value for name, value in headers.items() if name not in secret},
    }
    if body is not None:
        parameters["body"] = body
    timeout_s = block.fields.get("timeout")
    host = urlsplit(url).hostname or "http"
    request = Request(
        endpoint=Endpoint("http", host, url, headers=secret),
        parameters=parameters,
        timeout_s=None if timeout_s is None else float(timeout_s),
    )
    return parsed(await context.request(request))


def _url(block: Block, context: Context) -> str:
    """Return the URL; what stands for a placeholder is quoted, but for one that begins the URL."""
    template = block.text("url")

    def filled(match: re.Match[str]) -> str:
        text = context.fill(match[0], "url")
        return text if match.start() == 0 or match[0] in {"{{", "}}"} else quote(text, safe="")

    url = _PLACEHOLDER.sub(filled, template)
    if urlsplit(url).scheme not in {"http", "https"}:
        raise BlockError("url", f"url: '{url[:200]}' is not an http or https address")
    return url


def _body(block: Block, context: Context) -> Any:
    """Return the body: a filled template (JSON if it is JSON), or a mapping with filled texts."""
    template = block.fields.get("body_template")
    if template is not None:
        return _filled(str(template), context)
    return _filled(block.fields.get("body"), context)


def _filled(value: Any, context: Context) -> Any:
    if isinstance(value, str):
        return parsed(context.fill(value, "body"))
    if isinstance(value, Mapping):
        return {key: _member(member, context) for key, member in value.items()}
    if isinstance(value, list):
        return [_member(member, context) for member in value]
    return value


def _member(value: Any, context: Context) -> Any:
    """Return a member of a body; a text that is one placeholder stands for the value itself."""
    if isinstance(value, str):
        return context.value(value, "body")
    return _filled(value, context)
