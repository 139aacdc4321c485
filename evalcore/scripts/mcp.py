"""Tools of MCP servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from evalcore.expressions.template import compile_tree
from evalcore.scripts.iteration import Iteration, Scope, Tool, ToolError
from evalcore.scripts.statements import MistakeCollector, ScriptPart, is_text, read_shape
from evalcore.shapes import Text
from evalcore.trust.processes import hide_process
from evalcore.trust.secrets import literals_of_target, telling_values
from evalcore.wording import Loc, describe, suggest

if TYPE_CHECKING:
    import asyncio


MCP: Final = "mcp:"
_CALL_S: Final = 300.0
EXTRA: Final = "tools of MCP servers need the extra 'mcp': pip install 'evalcore-pipeline[mcp]'"


class McpServer(ScriptPart):
    """A server; a call of a tool may take `timeout_seconds`."""

    auto_import_scope: Literal["none", "chat"] = "none"
    timeout_seconds: float = Field(_CALL_S, gt=0)


class StdioServer(McpServer):
    """A server that is a process of this machine."""

    transport: Literal["stdio"] = "stdio"
    command: Text
    args: list[Any] | str = Field(default_factory=list)
    env: dict[str, Any] | str = Field(default_factory=dict)


class WebServer(McpServer):
    """A server that is asked over HTTP."""

    transport: Literal["streamable_http"] = "streamable_http"
    url: Text
    headers: dict[str, Any] | str = Field(default_factory=dict)


_TRANSPORTS: Final[Mapping[str, type[McpServer]]] = {
    "stdio": StdioServer,
    "streamable_http": WebServer,
}


def read_mcp_reference(reference: str) -> tuple[str, str] | None:
    """Return the server and the tool of `mcp:server/tool`."""
    server, separator, tool = reference.removeprefix(MCP).partition("/")
    return (server, tool) if separator and server and tool else None


class McpTool(Tool):
    """A tool of a server."""

    def __init__(self, name: str, server: str, tool: str) -> None:
        self.name = name
        self.server = server
        self.tool = tool

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return what the server answers; raise `ToolError`."""
        return await run.call_server(self.server, self.tool, params)


def check_servers(raw: Any, loc: Loc, mistakes: MistakeCollector) -> dict[str, Any]:
    """Return the servers of `mcp`; what is wrong with them is noted."""
    if not isinstance(raw, Mapping):
        if raw is not None:
            mistakes.add(loc, f"expected a mapping of servers, got {describe(raw)}")
        return {}
    for name, server in raw.items():
        at = (*loc, str(name))
        if not is_text(name, loc, mistakes):
            continue
        if not isinstance(server, Mapping):
            mistakes.add(at, f"expected {{transport: …}}, got {describe(server)}")
        else:
            _check_server(server, at, mistakes)
    return {str(name): dict(server) for name, server in raw.items() if isinstance(server, Mapping)}


def _check_server(server: Mapping[str, Any], loc: Loc, mistakes: MistakeCollector) -> None:
    default = "streamable_http" if "url" in server else "stdio"
    transport = server.get("transport", default)
    if transport not in tuple(_TRANSPORTS):
        hint = suggest(transport, _TRANSPORTS)
        mistakes.add((*loc, "transport"), f"unknown transport {describe(transport)}.{hint}")
        return
    read_shape(_TRANSPORTS[transport], server, loc, mistakes)
    for literal in literals_of_target({"body": server.get("args")}):
        mistakes.add((*loc, "args", *literal.path[1:]), literal.message("${env.NAME}"))
    for key in ("env", "headers"):
        if isinstance(server.get(key), Mapping):
            _check_secrets(server[key], (*loc, key), mistakes)


def _check_secrets(values: Mapping[Any, Any], loc: Loc, mistakes: MistakeCollector) -> None:
    """Note keys and tokens that the file holds itself: what is planned is stored."""
    for name, value in values.items():
        literal = isinstance(value, str) and value and "${" not in value
        if literal and telling_values({str(name): value}):
            message = "a secret must not stand in a file; write ${env.NAME}"
            mistakes.add((*loc, str(name)), message)


# As long as imports of code may take: a server is another program, that may have to be downloaded.
_CONNECT_S: Final = 120.0


class McpServers:
    """The servers of a script; the tools of one are called over one connection.

    A connection lives in a task of its own, in which alone it may be opened and closed.
    """

    def __init__(self, servers: Mapping[str, Mapping[str, Any]], scope: Mapping[str, Any]) -> None:
        """Take the definitions by name, and what their `${…}` see."""
        self._servers = servers
        self._scope = scope
        self._opened: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(self, server: str, tool: str, params: Mapping[str, Any]) -> Any:
        """Return what a tool gives; raise `ToolError` if it fails or the server is not there."""
        import asyncio

        client = await self._client(server)
        limit_s = self._servers[server].get("timeout_seconds", _CALL_S)
        try:
            async with asyncio.timeout(limit_s):
                result = await client.call_tool(tool, dict(params))
        except TimeoutError as error:
            message = f"{server}/{tool}: no answer within {limit_s:g} s (timeout_seconds)"
            raise ToolError("TimeoutError", message) from error
        except Exception as error:
            # The SDK's own kinds of failures, and what the transport raises.
            message = f"{server}/{tool}: {_reason(error)}"
            raise ToolError("ToolException", message) from error
        return _value(server, tool, result)

    async def _client(self, server: str) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        connection = self._opened.get(server)
        if connection is None or connection[0] is not loop:
            ready: asyncio.Future[Any] = loop.create_future()
            self._opened[server] = connection = (loop, ready)
            task = loop.create_task(self._serve(server, ready), name=f"mcp-{server}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await asyncio.shield(connection[1])
        except TimeoutError as error:
            message = f"MCP server '{server}' did not answer within {_CONNECT_S:g} s"
            raise ToolError("TimeoutError", message) from error

    async def _serve(self, server: str, ready: asyncio.Future[Any]) -> None:
        """Hold the connection open until the event loop ends."""
        import asyncio

        try:
            async with self._connection(server) as client:
                ready.set_result(client)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001 - a foreign server: its callers raise it
            if not ready.done():
                message = f"MCP server '{server}': {_reason(error)}"
                unreachable = ToolError("ConnectionError", message)
                ready.set_exception(error if isinstance(error, ToolError) else unreachable)
                with suppress(ToolError):
                    ready.exception()
            self._opened.pop(server, None)

    def _connection(self, server: str) -> Any:
        try:
            from mcp import Client, StdioServerParameters, stdio_client
        except ImportError as error:
            raise ToolError("ImportError", EXTRA) from error
        raw = compile_tree(dict(self._servers[server])).render(self._scope)
        if raw.get("transport", "stdio") == "stdio" and "url" not in raw:
            parameters = StdioServerParameters(
                command=str(raw["command"]),
                args=[str(argument) for argument in raw.get("args") or []],
                env={str(key): str(value) for key, value in (raw.get("env") or {}).items()},
            )
            hide_process()
            # What a server logs would stand between the lines of the report.
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for its life
            return Client(stdio_client(parameters, errlog=nowhere))
        headers = {str(key): str(value) for key, value in (raw.get("headers") or {}).items()}
        return Client(_web(str(raw["url"]), headers))


def _web(url: str, headers: dict[str, str]) -> Any:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    if not headers:
        return url
    return streamable_http_client(url, http_client=create_mcp_http_client(headers=headers))


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _value(server: str, tool: str, result: Any) -> Any:
    """Return structured content (what a lone `result` holds), else the text; raise `ToolError`."""
    texts = [part.text for part in result.content or () if getattr(part, "type", "") == "text"]
    text = "\n".join(texts)
    if result.is_error:
        raise ToolError("ToolException", f"{server}/{tool}: {text or 'the tool failed'}")
    structured = result.structured_content
    if structured is not None:
        lone = isinstance(structured, Mapping) and set(structured) == {"result"}
        return structured["result"] if lone else structured
    return text
