"""A proxy in front of an S3 server that counts requests and delays each of them.

It passes bytes on as they come: signatures cover host and path. One event loop in a thread of its
own; about 5 000 requests a second.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_PIECE_BYTES = 256 * 1024
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
# What each part of a run's folder is called in the table by key.
_PARTS = re.compile(
    r"/(manifest\.json|plan|results|claims|history|recordings|blobs|events|report\.json|CANCEL|"
    r"limits|begun|RESULTS-DROPPED|DECIDED|labels|annotations|baselines|\.probe)(?=[/?]|$)"
)


@dataclass
class Traffic:
    """What passed: requests by kind (PUT, GET, HEAD, LIST, DELETE, POST) and by part; bytes."""

    kinds: Counter[str] = field(default_factory=Counter)
    parts: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0
    received_bytes: int = 0

    @property
    def requests(self) -> int:
        """How many requests there were."""
        return self.kinds.total()


class CountingProxy:
    """Counts what passes (`traffic`); each request waits for `delay_s` before it is passed on."""

    def __init__(self, target_url: str) -> None:
        self.target = urlsplit(target_url)
        self.delay_s = 0.0
        self.url = ""
        self.traffic = Traffic()

    def reset(self) -> None:
        """Begin to count anew."""
        self.traffic = Traffic()

    async def connected(
        self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        """Pass on what one connection says, in both directions."""
        server_in, server_out = await asyncio.open_connection(
            self.target.hostname, self.target.port
        )
        back = asyncio.create_task(self._answers(server_in, client_out))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._requests(client_in, server_out)
        with suppress(ConnectionError):
            server_out.close()
        await back

    async def _requests(
        self, client_in: asyncio.StreamReader, server_out: asyncio.StreamWriter
    ) -> None:
        while True:
            head = await client_in.readuntil(b"\r\n\r\n")
            self._count(head)
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            server_out.write(head)
            length = _LENGTH.search(head)
            missing = int(length[1]) if length else 0
            self.traffic.sent_bytes += missing
            while missing:
                piece = await client_in.read(min(missing, _PIECE_BYTES))
                if not piece:
                    return
                missing -= len(piece)
                server_out.write(piece)
                await server_out.drain()
            await server_out.drain()

    async def _answers(
        self, server_in: asyncio.StreamReader, client_out: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while piece := await server_in.read(_PIECE_BYTES):
                self.traffic.received_bytes += len(piece)
                client_out.write(piece)
                await client_out.drain()
        with suppress(ConnectionError):
            client_out.close()

    def _count(self, head: bytes) -> None:
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        is_listing = method == "GET" and "list-type=" in target
        kind = "LIST" if is_listing else method
        target = target.replace("%2F", "/")
        part = _PARTS.search(target)
        self.traffic.kinds[kind] += 1
        self.traffic.parts[f"{kind} {part[1] if part else 'runs'}"] += 1


@contextmanager
def counting_proxy(target_url: str) -> Iterator[CountingProxy]:
    """Run the proxy in front of the server at `target_url` on a free loopback port."""
    proxy = CountingProxy(target_url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(proxy.connected, "127.0.0.1", 0, limit=1 << 20)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
