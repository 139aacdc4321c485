"""Tools of MCP servers."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from evalcore.declared.types import Text
from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe, suggest
from evalcore.scripts.iteration import Iteration, Scope, Tool, WaitingTool
from evalcore.scripts.mistake_collector import MistakeCollector
from evalcore.scripts.read_shape import read_shape
from evalcore.scripts.statements.statement import ScriptPart
from evalcore.scripts.toolbox import OpenPrefix
from evalcore.trust.literal_secrets import literals_of_target
from evalcore.trust.secret_options import telling_values

MCP: Final = "mcp:"
EXTRA: Final = "tools of MCP servers need the extra 'mcp': pip install 'evalcore-pipeline[mcp]'"


class McpServer(ScriptPart):
    """A server; with `auto_import_scope: shared` all its tools can be called."""

    auto_import_scope: Literal["none", "shared", "chat"] = "none"


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


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns, and none that begins with `!`."""
    included = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    excluded = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in included) and not any(
        fnmatch.fnmatchcase(name, pattern) for pattern in excluded
    )


class McpTool(WaitingTool):
    """A tool of a server."""

    def __init__(self, name: str, server: str, tool: str) -> None:
        self.name = name
        self.server = server
        self.tool = tool

    async def call(self, params: dict[str, Any], scope: Scope, run: Iteration) -> Any:  # noqa: ARG002
        """Return what the server answers; raise `ToolError`."""
        return await run.servers.call(self.server, self.tool, params)


class McpPrefix(OpenPrefix):
    """All tools of a server, under a prefix."""

    def __init__(self, prefix: str, server: str, patterns: Sequence[str]) -> None:
        super().__init__(prefix)
        self._server = server
        self._patterns = tuple(patterns)

    def allows(self, name: str) -> bool:
        """Whether the filter lets the name through."""
        return super().allows(name) and matches(name.removeprefix(self.prefix), self._patterns)

    def tool(self, name: str) -> Tool:
        """Return the server's tool."""
        return McpTool(name, self._server, name.removeprefix(self.prefix))


def check_servers(raw: Any, loc: Loc, mistakes: MistakeCollector) -> dict[str, Any]:
    """Return the servers of `mcp`; what is wrong with them is noted."""
    if not isinstance(raw, Mapping):
        if raw is not None:
            mistakes.add(loc, f"expected a mapping of servers, got {describe(raw)}")
        return {}
    for name, server in raw.items():
        at = (*loc, str(name))
        if not isinstance(name, str):
            mistakes.add(at, f"a key must be text, got {describe(name)}; write it in quotes")
        elif not isinstance(server, Mapping):
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
