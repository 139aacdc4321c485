"""The protocol server of the SDK: it lists the tools and answers their calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import orjson
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from starlette.requests import Request

from evalcore.service.errors import ServiceError
from evalcore.service.mcp.tools import TOOLS, RouteTool, ToolRequest
from evalcore.version import VERSION
from evalcore.wording import did_you_mean

Perform = Callable[[ToolRequest, Request | None], Awaitable[Any]]
"""Return the content of the service's response, None without one; raise `ServiceError`.

The second argument is the HTTP request that the call came with, None over stdio.
"""

_INSTRUCTIONS: Final = (
    "evalcore keeps saved evals: each freezes the inputs of one block of a registered workflow and "
    "asserts one thing about the block's output. Save evals, run them, read the run until it has "
    "ended, then list its results."
)


def protocol_server(perform: Perform) -> Server[Any]:
    """Return a server whose calls of tools are performed by `perform`."""

    async def list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS.values()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = TOOLS.get(params.name)
        if tool is None:
            hint = did_you_mean(params.name, TOOLS)
            raise MCPError(types.INVALID_PARAMS, f"unknown tool '{params.name[:80]}'.{hint}")
        arguments = params.arguments or {}
        try:
            content = await perform(tool.request(arguments), context.request)
        except ServiceError as error:
            return _refusal(error.detail)
        return _success(tool.answer(content, arguments))

    return Server(
        "evalcore",
        title="evalcore: saved evals of workflows",
        version=VERSION,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        # No schema asks for headers of the request.
        get_tool_input_schema=lambda _: None,
    )


def _described(tool: RouteTool) -> types.Tool:
    return types.Tool(
        name=tool.row.name,
        title=tool.row.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations.model_validate(tool.annotations),
    )


def _success(answer: dict[str, Any]) -> types.CallToolResult:
    text = types.TextContent(type="text", text=orjson.dumps(answer).decode())
    return types.CallToolResult(content=[text], structured_content=answer)


def _refusal(detail: Any) -> types.CallToolResult:
    text = types.TextContent(type="text", text=refusal_text(detail))
    return types.CallToolResult(content=[text], is_error=True)


def refusal_text(detail: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the `detail` of a refused request as text: one line for each mistake."""
    if isinstance(detail, str):
        return detail
    return "\n".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in detail)
