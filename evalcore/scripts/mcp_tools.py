"""Tools of MCP servers."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any, Final

from evalcore.mistakes.locations import Loc
from evalcore.mistakes.wording import describe, suggest
from evalcore.scripts.iteration import Iteration, Scope, Tool
from evalcore.scripts.mistake_collector import MistakeCollector
from evalcore.scripts.toolbox import OpenPrefix
from evalcore.scripts.words import check_keys, is_text
from evalcore.trust.secret_options import telling_values

MCP: Final = "mcp:"
_TRANSPORTS: Final[Mapping[str, tuple[str, ...]]] = {
    "stdio": ("command", "args", "env"),
    "streamable_http": ("url", "headers"),
}
SCOPES: Final = ("none", "shared", "chat")
EXTRA: Final = "tools of MCP servers need the extra 'mcp': pip install 'evalcore-pipeline[mcp]'"


def read_mcp_reference(reference: str) -> tuple[str, str] | None:
    """Return the server and the tool of `mcp:server/tool`."""
    server, separator, tool = reference.removeprefix(MCP).partition("/")
    return (server, tool) if separator and server and tool else None


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the patterns, and none that begins with `!`."""
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")] or ["*"]
    unwanted = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return any(fnmatch.fnmatchcase(name, one) for one in wanted) and not any(
        fnmatch.fnmatchcase(name, one) for one in unwanted
    )


class McpTool:
    """A tool of a server."""

    def __init__(self, name: str, server: str, tool: str) -> None:
        self.name = name
        self.server = server
        self.tool = tool

    def waits(self, seen: set[int]) -> bool:  # noqa: ARG002 - the protocol's parameter
        """Whether it has to be waited for: always."""
        return True

    def parameters(self) -> tuple[str, ...] | None:
        """Return None: the server knows."""
        return None

    def schema(self) -> dict[str, Any]:
        """Return what a model is told of the parameters."""
        return {"type": "object"}

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
    if transport not in _TRANSPORTS:
        hint = suggest(transport, _TRANSPORTS)
        mistakes.add((*loc, "transport"), f"unknown transport {describe(transport)}.{hint}")
        return
    keys = _TRANSPORTS[transport]
    check_keys(server, ("transport", "auto_import_scope", *keys), loc, mistakes)
    if keys[0] not in server:
        mistakes.add((*loc, keys[0]), "is required")
    else:
        is_text(server[keys[0]], (*loc, keys[0]), mistakes)
    scope = server.get("auto_import_scope", "none")
    if scope not in SCOPES:
        known = ", ".join(SCOPES)
        mistakes.add((*loc, "auto_import_scope"), f"expected {known}, got {describe(scope)}")
    args = server.get("args", [])
    if not isinstance(args, list | str):
        mistakes.add((*loc, "args"), f"expected a list, got {describe(args)}")
    for key in ("env", "headers"):
        if not isinstance(server.get(key, {}), Mapping | str):
            mistakes.add((*loc, key), f"expected a mapping, got {describe(server[key])}")
        elif isinstance(server.get(key), Mapping):
            _check_secrets(server[key], (*loc, key), mistakes)


def _check_secrets(values: Mapping[Any, Any], loc: Loc, mistakes: MistakeCollector) -> None:
    """Note keys and tokens that the file holds itself: what is planned is stored."""
    for name, value in values.items():
        literal = isinstance(value, str) and value and "${" not in value
        if literal and telling_values({str(name): value}):
            message = "a secret must not stand in a file; write ${env.NAME}"
            mistakes.add((*loc, str(name)), message)
