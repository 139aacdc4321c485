"""What a call of a soul's tool does. A failure is text for the model, which may go another way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from evalcore.errors import EvalError
from evalcore.scripts.builtin_tools import page_text
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.trust.variables import MARK, REFERENCE, substituted
from evalcore.workflow.failure import BlockError
from evalcore.workflow.python_process import run_python
from evalcore.workflow.reference_values import reference_value
from evalcore.workflow.soul_tools import SoulTool, ToolCallRequest
from evalcore.workflow.values import MISSING, at_path, parsed, text_of
from evalcore.workflow.web_request import web_request

if TYPE_CHECKING:
    from evalcore.model.exchange import Request
    from evalcore.workflow.tool_context import ToolContext

_ARGUMENT: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_PAGE: Final = re.compile(r"\s*(?:<!doctype html|<html)\b", re.IGNORECASE)
_LONGEST_ANSWER: Final = 64 << 10
_LARGEST_FILE: Final = 1 << 20
_MOST_WRITTEN: Final = 16 << 20


async def call_tool(tool: SoulTool, arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Return the answer of a tool; raise `BlockError` where it gives none."""
    match tool.executor:
        case "python":
            returned = await run_python(
                f"tool '{tool.name}'",
                dict(arguments),
                context.services,
                code=tool.code,
                timeout_s=tool.timeout_seconds,
            )
            return text_of(returned)
        case "request":
            return await _request(tool, arguments, context)
        case "http":
            return await _open_request(tool, arguments, context)
        case "file_io":
            return _file(arguments, context)
        case "delegate":
            return _delegated(arguments, context)


def _text_argument(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise BlockError("input", f"the argument '{name}' is required and has to be text")
    return value


async def _request(tool: SoulTool, arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Send the request that the tool's file declares."""
    written = tool.request
    if written is None:
        raise BlockError("tool", "its file has no 'request'")

    not_set: dict[str, str] = {}

    def value(match: re.Match[str], where: str, *, secret: bool = False) -> str:
        text = reference_value(match, where, context.services, secret=secret)
        if text == match[0]:
            not_set[text] = text
        return text

    def fill(template: str, where: str, *, secret: bool = False) -> str:
        return _filled(
            template,
            lambda name: text_of(arguments.get(name, "")),
            lambda match: value(match, where, secret=secret),
        )

    url = _url(written, arguments)
    headers = {
        name: fill(value, f"headers.{name}", secret=True)
        for name, value in (written.headers or {}).items()
    }
    body = None if written.body_template is None else fill(written.body_template, "body_template")
    request = web_request(
        written.method,
        url,
        headers=headers,
        secret_headers=[
            name for name, value in (written.headers or {}).items() if REFERENCE.search(value)
        ],
        values={match[0]: value(match, "url") for match in REFERENCE.finditer(written.url)}
        | not_set,
        body=None if body is None else parsed(body),
        timeout_s=tool.timeout_seconds,
        public_only=context.services.of_service,
    )
    return await _answer(request, written.response_path, context)


def _filled(
    template: str, argument: Callable[[str], str], variable: Callable[[re.Match[str]], str]
) -> str:
    """Return a template filled; what is filled in is no template of its own."""
    return substituted(
        template, variable, lambda text: _ARGUMENT.sub(lambda match: argument(match[1]), text)
    )


def _url(written: ToolCallRequest, arguments: Mapping[str, Any]) -> str:
    """Return the URL with quoted arguments; one that begins the URL stands as it is."""
    begins = _ARGUMENT.match(written.url)

    def argument(name: str) -> str:
        text = text_of(arguments.get(name, ""))
        is_first = begins is not None and begins[1] == name
        return text.replace(MARK, quote(MARK)) if is_first else quote(text, safe="")

    url = _filled(written.url, argument, lambda match: match[0])
    if not REFERENCE.match(url) and urlsplit(url).scheme not in {"http", "https"}:
        raise BlockError("url", f"'{url[:200]}' is not an http or https address")
    return url


async def _open_request(tool: SoulTool, arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Send the request that the model asks for; it reaches public addresses only."""
    url = _text_argument(arguments, "url")
    if urlsplit(url).scheme not in {"http", "https"}:
        raise BlockError("url", f"'{url[:200]}' is not an http or https address")
    headers = arguments.get("headers")
    request = web_request(
        str(arguments.get("method") or "GET"),
        url,
        headers={
            str(name): text_of(value)
            for name, value in (headers if isinstance(headers, Mapping) else {}).items()
        },
        secret_headers=(),
        values={},
        body=arguments.get("body"),
        timeout_s=tool.timeout_seconds,
        public_only=True,
    )
    path = arguments.get("response_path")
    return await _answer(request, path if isinstance(path, str) and path else None, context)


async def _answer(request: Request, response_path: str | None, context: ToolContext) -> str:
    text = await context.request(request)
    if response_path is not None:
        value = at_path(parsed(text), response_path)
        if value is MISSING:
            raise BlockError("output", f"there is no '{response_path}' in the answer")
        text = text_of(value)
    elif _PAGE.match(text):
        text = page_text(text)
    encoded = text.encode(errors="replace")
    if len(encoded) <= _LONGEST_ANSWER:
        return text
    return encoded[:_LONGEST_ANSWER].decode(errors="ignore") + "\n\n[truncated]"


def _file(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Read or write a file; what is written is kept for the execution only."""
    action, name = arguments.get("action"), _text_argument(arguments, "path")
    path = Path(name)
    hidden = any(part.startswith(".") for part in path.parts)
    if path.is_absolute() or hidden:
        raise BlockError("input", f"'{name}' is no path below the suite's repository")
    key = path.as_posix()
    if action == "write":
        content = text_of(arguments.get("content", ""))
        others = sum(len(text) for other, text in context.files.items() if other != key)
        if others + len(content) > _MOST_WRITTEN:
            raise BlockError("output", f"more than {_MOST_WRITTEN >> 20} MiB are written")
        context.files[key] = content
        return f"Written {len(content)} characters to {name}"
    if action != "read":
        raise BlockError("input", f"unknown action {action!r}; it is 'read' or 'write'")
    if key in context.files:
        return context.files[key]
    if context.services.of_service:
        raise BlockError("input", f"there is no file '{name}'; the tool reads what it wrote")
    folder = context.services.folder
    try:
        file = resolve_inside(repository_root(folder), folder, key)
        if file.stat().st_size > _LARGEST_FILE:
            raise BlockError("input", f"'{name}' is larger than {_LARGEST_FILE >> 20} MiB")
        return file.read_text("utf-8", "replace")
    except (OSError, ValueError, EvalError) as error:
        if isinstance(error, BlockError):
            raise
        raise BlockError("input", f"there is no file '{name}'") from error


def _delegated(arguments: Mapping[str, Any], context: ToolContext) -> str:
    """Note the exit that the model chooses; it is the block's exit handle."""
    port, task = _text_argument(arguments, "port"), arguments.get("task")
    exits = [way.id for way in context.block.exits or ()]
    if port not in exits:
        raise BlockError("input", f"invalid port '{port}'; valid: {', '.join(exits) or 'none'}")
    context.state.chosen_exits[context.block.id] = port
    return text_of({"port": port, "task": task}) if task else port
