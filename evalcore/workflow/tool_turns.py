"""The turns of a soul that has tools: it asks for calls, gets their answers, and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalcore.workflow.events import EventType
from evalcore.workflow.failure import BlockError
from evalcore.workflow.services import NO_OFFER, Offer, SoulAnswer
from evalcore.workflow.soul_tools import SoulTool
from evalcore.workflow.souls import Soul
from evalcore.workflow.tool_calls import call_tool
from evalcore.workflow.values import text_of

if TYPE_CHECKING:
    from evalcore.workflow.tool_context import ToolContext

AskOnce = Callable[[Sequence[Mapping[str, Any]], Offer], Awaitable[SoulAnswer]]


async def answer_in_turns(
    soul: Soul,
    tools: Mapping[str, SoulTool],
    messages: Sequence[Mapping[str, Any]],
    ask: AskOnce,
    context: ToolContext,
) -> SoulAnswer:
    """Return the soul's last answer; `tools` are by the name that the model uses.

    After `max_tool_iterations` turns the answer has to be text. Raises `BlockError` if the soul
    answers before it has called all of `required_tool_calls`.
    """
    conversation = list(messages)
    exits = [way.id for way in context.block.exits or ()]
    described = tuple(tool.offer(exits) for tool in tools.values())
    required = dict.fromkeys(soul.required_tool_calls or ())
    turn = 0
    while True:
        may_call = bool(required) or turn < soul.max_tool_iterations - 1
        if turn >= soul.max_tool_iterations and required:
            missing = ", ".join(required)
            message = f"no call of {missing} within {soul.max_tool_iterations} turns"
            raise BlockError("tools", f"soul '{soul.id}': {message} (max_tool_iterations)")
        offer = _offer(described, conversation, may_call=may_call, required=bool(required))
        answer = await ask(conversation, offer)
        if not answer.tool_calls or not may_call:
            if required:
                missing = ", ".join(required)
                raise BlockError("tools", f"soul '{soul.id}' answered without calling {missing}")
            return answer
        calls = [dict(call) for call in answer.tool_calls]
        conversation.append({"role": "assistant", "content": answer.text, "tool_calls": calls})
        for call in calls:
            required.pop(str(call.get("name")), None)
            content = await _called(call, tools, context)
            reply = {"role": "tool", "tool_call_id": call.get("id"), "content": content}
            conversation.append(reply)
        turn += 1


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


async def _called(
    call: Mapping[str, Any], tools: Mapping[str, SoulTool], context: ToolContext
) -> str:
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
