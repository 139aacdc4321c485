"""The tools over standard input and output, for clients that start the server themselves."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from evalcore.service.mcp.protocol import Perform, protocol_server


async def serve_stdio(perform: Perform) -> None:
    """Answer the messages of standard input until it ends.

    Output of other code goes to standard error meanwhile.
    """
    server = protocol_server(perform)
    async with stdio_server() as (messages, replies):
        await server.run(messages, replies, server.create_initialization_options())
