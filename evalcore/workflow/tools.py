"""Souls with tools: their turns, and what a call does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from evalcore.errors import EvalError
from evalcore.model.exchange import Request
from evalcore.scripts.builtin_tools import page_text
from evalcore.trust.files import repository_root, resolve_inside
from evalcore.workflow.context import NO_OFFER, Context, Offer
from evalcore.workflow.definition import DEFAULT_SOUL, Soul, SoulTool
from evalcore.workflow.events import BlockError, EventType
from evalcore.workflow.python_process import run_python
from evalcore.workflow.requests import RequestTemplate, check_address, web_request
from evalcore.workflow.values import MISSING, at_path, parsed, text_of


async def ask(
    context: Context,
    soul_ref: str | None,
    text: str,
    *,
    part: str | None = None,
    group: int | None = None,
) -> str:
    """Return the soul's answer to a user message.

    `part` is the exit that it is for; calls of one `group` run at the same time. A soul may call
    its tools; after `max_tool_iterations` turns the answer has to be text. Raise `BlockError` if it
    answers before it has called all of `required_tool_calls`, if the provider fails or a limit is
    passed; `SkippedError` as it is.
    """
    definition, block = context.definition, context.block
    name = DEFAULT_SOUL if soul_ref is None else soul_ref
    soul = definition.souls.get(name) or Soul(id=name, model_name=definition.default_model)
    question: Mapping[str, Any] = {"role": "user", "content": text}
    history: list[Mapping[str, Any]] = []
    if block.stateful:
        key = f"{block.id}:{name}:{part or ''}"
        history = context.state.conversations.setdefault(key, [])
    system = [{"role": "system", "content": soul.system_prompt}] if soul.system_prompt else []
    conversation: list[Mapping[str, Any]] = [*system, *history, question]
    tools = definition.tools_of(soul)
    exits = [way.id for way in block.exits or ()]
    described = tuple(tool.offer(exits) for tool in tools.values())
    required = dict.fromkeys(soul.required_tool_calls or ()) if tools else {}
    for turn in count():
        missing = ", ".join(required)
        if required and turn >= soul.max_tool_iterations:
            message = f"no call of {missing} within {turn} turns (max_tool_iterations)"
            raise BlockError("tools", f"soul '{soul.id}': {message}")
        may_call = bool(tools and (required or turn < soul.max_tool_iterations - 1))
        offer = _offer(described, conversation, may_call=may_call, required=bool(required))
        call = context.call(soul.provider or "", soul.model_name or "", part, group)
        send = partial(context.services.ask, soul, tuple(conversation), offer)
        answer = await context.answered(call, send)
        if not answer.tool_calls or not may_call:
            if required:
                raise BlockError("tools", f"soul '{soul.id}' answered without calling {missing}")
            break
        calls = [dict(made) for made in answer.tool_calls]
        conversation.append({"role": "assistant", "content": answer.text, "tool_calls": calls})
        for made in calls:
            required.pop(str(made.get("name")), None)
            content = await _called(made, tools, context)
            reply = {"role": "tool", "tool_call_id": made.get("id"), "content": content}
            conversation.append(reply)
    history += [question, {"role": "assistant", "content": answer.text}]
    return answer.text


def _offer(
    described: tuple[Mapping[str, Any], ...],
    conversation: Sequence[Mapping[str, Any]],
    *,
    may_call: bool,
    required: bool,
) -> Offer:
    if may_call:
        return Offer(described, "required" if required else None)
    # Anthropic refuses messages with calls of tools that the request does not describe.
    has_calls = any(message.get("tool_calls") for message in conversation)
    return Offer(described, "none") if has_calls else NO_OFFER


async def _called(call: Mapping[str, Any], tools: Mapping[str, SoulTool], context: Context) -> str:
    """Return what the model is told of its call, recorded as an event."""
    name, arguments = str(call.get("name")), call.get("arguments")
    tool = tools.get(name)
    error: str | None = None
    try:
        if tool is None:
            raise BlockError("tool", f"unknown tool '{name}'")
        if not isinstance(arguments, Mapping):
            raise BlockError("input", f"the arguments are no JSON object: {text_of(arguments)}")
        content = await call_tool(tool, arguments, context)
    except BlockError as failure:
        if failure.kind == "limit":
            raise
        error = failure.message
        content = f"Error: {error}"
    await context.log.add(
        EventType.TOOL_CALL,
        context.path,
        name=name,
        arguments=text_of(arguments),
        output=None if error is not None else content,
        error=error,
    )
    return content


_ARGUMENT: Final = re.compile(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}")
_PAGE: Final = re.compile(r"\s*(?:<!doctype html|<html)\b", re.IGNORECASE)
_LONGEST_ANSWER: Final = 64 << 10
_LARGEST_FILE: Final = 1 << 20
_MOST_WRITTEN: Final = 16 << 20


async def call_tool(tool: SoulTool, arguments: Mapping[str, Any], context: Context) -> str:
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


async def _request(tool: SoulTool, arguments: Mapping[str, Any], context: Context) -> str:
    """Send the request that the tool's file declares."""
    written = tool.request
    if written is None:
        raise BlockError("tool", "its file has no 'request'")

    def argument(match: re.Match[str]) -> str:
        return text_of(arguments.get(match[1], ""))

    template = RequestTemplate(context.services, lambda text, _: _ARGUMENT.sub(argument, text))
    url = template.url(written.url, _ARGUMENT)
    body = None
    if written.body_template is not None:
        body = parsed(template.text(written.body_template, "body_template"))
    request = template.request(
        written.method, url, written.url, written.headers, body, tool.timeout_seconds
    )
    return await _answer(request, written.response_path, context)


async def _open_request(tool: SoulTool, arguments: Mapping[str, Any], context: Context) -> str:
    """Send the request that the model asks for; it reaches public addresses only."""
    url = _text_argument(arguments, "url")
    check_address(url)
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


async def _answer(request: Request, response_path: str | None, context: Context) -> str:
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


def _file(arguments: Mapping[str, Any], context: Context) -> str:
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
        too_large = file.stat().st_size > _LARGEST_FILE
        text = "" if too_large else file.read_text("utf-8", "replace")
    except (OSError, ValueError, EvalError) as error:
        raise BlockError("input", f"there is no file '{name}'") from error
    if too_large:
        raise BlockError("input", f"'{name}' is larger than {_LARGEST_FILE >> 20} MiB")
    return text


def _delegated(arguments: Mapping[str, Any], context: Context) -> str:
    """Note the exit that the model chooses; it is the block's exit handle."""
    port, task = _text_argument(arguments, "port"), arguments.get("task")
    exits = [way.id for way in context.block.exits or ()]
    if port not in exits:
        raise BlockError("input", f"invalid port '{port}'; valid: {', '.join(exits) or 'none'}")
    context.state.chosen_exits[context.block.id] = port
    return text_of({"port": port, "task": task}) if task else port


_TEXT: Final = {"type": "string"}


def _built_in(executor: Any, name: str, description: str, **parameters: Any) -> SoulTool:
    required = [key for key, schema in parameters.items() if schema.pop("required", True)]
    schema = {"type": "object", "properties": parameters, "required": required}
    return SoulTool(name=name, description=description, parameters=schema, executor=executor)


def built_in_tools() -> Mapping[str, SoulTool]:
    """Return the tools that need no file, by the id that souls name."""
    http = _built_in(
        "http",
        "http_request",
        "Make an HTTP request to an external URL.",
        method=dict(_TEXT),
        url=dict(_TEXT),
        headers={"type": "object", "required": False},
        body={**_TEXT, "required": False},
        response_path={**_TEXT, "required": False},
    )
    file_io = _built_in(
        "file_io",
        "file_io",
        "Read or write files within a sandboxed directory.",
        action={**_TEXT, "enum": ["read", "write"]},
        path=dict(_TEXT),
        content={**_TEXT, "required": False},
    )
    delegate = _built_in(
        "delegate",
        "delegate",
        "Delegate execution to an exit port.",
        port=dict(_TEXT),
        task={**_TEXT, "description": "The task instruction to delegate to this port."},
    )
    return {"http": http, "file_io": file_io, "delegate": delegate}
