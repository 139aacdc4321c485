"""When the bytes of an exchange went out and came in, also if the event loop is late.

The loop may be late: it imports a module, grades an answer, has a thousand others to serve. So the
time of an answer is taken as its bytes are read, and Linux says how long they had lain there by
then (`TCP_INFO`, in steps of 4 ms or less). Elsewhere a loop that is late makes answers look late.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler

# Of `struct tcp_info`: eight bytes, ten numbers of 32 bits, then what is wanted.
_LAST_RECEIVED: Final = struct.Struct("=52xI")
# The kernel counts whole steps of its clock: up to one of them may not have passed.
_STEP_MS: Final = 4
_TELLS_LAG: Final = sys.platform == "linux" and hasattr(socket, "TCP_INFO")


class WireTimes:
    """The times of one exchange, in seconds of `time.perf_counter`."""

    def __init__(self) -> None:
        self.sent_at = time.perf_counter()
        self.protocol: Any = None

    @property
    def elapsed_ms(self) -> float:
        """From the last byte sent to the last one that has been read until now, to 0.1 ms."""
        received_at = getattr(self.protocol, "received_at", 0.0) or time.perf_counter()
        return round(max(0.0, received_at - self.sent_at) * 1000, 1)


_CURRENT: ContextVar[WireTimes | None] = ContextVar("exchange", default=None)


def begin_exchange() -> WireTimes:
    """Return the times of the exchange that the running task makes next."""
    times = WireTimes()
    _CURRENT.set(times)
    return times


class _TimedProtocol(ResponseHandler):
    """Notes when the bytes came that were read last."""

    received_at = 0.0

    def data_received(self, data: bytes) -> None:
        if data:
            self.received_at = time.perf_counter() - _lag_s(self.transport)
        super().data_received(data)


class TimedConnector(aiohttp.TCPConnector):
    """A connector whose connections note when bytes come in."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._factory: Any = partial(_TimedProtocol, loop=self._loop)

    async def connect(self, *args: Any, **options: Any) -> Any:
        """Return a connection; the exchange of the running task learns its protocol."""
        connection = await super().connect(*args, **options)
        times = _CURRENT.get()
        if times is not None:
            protocol: Any = connection.protocol
            protocol.received_at = 0.0
            times.protocol = protocol
        return connection


def sending_times() -> aiohttp.TraceConfig:
    """Return what notes when the parts of a request go out."""

    async def sent(_: aiohttp.ClientSession, __: SimpleNamespace, ___: object) -> None:
        times = _CURRENT.get()
        if times is not None:
            times.sent_at = time.perf_counter()

    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(sent)
    trace.on_request_chunk_sent.append(sent)
    return trace


def _lag_s(transport: Any) -> float:
    """Return how long ago (seconds) the kernel received what is read now, or less: never more."""
    if not _TELLS_LAG or transport is None:
        return 0.0
    try:
        raw = transport.get_extra_info("socket")
        information = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_RECEIVED.size)
        (lag_ms,) = _LAST_RECEIVED.unpack(information)
    except (AttributeError, OSError, struct.error):  # no TCP, or a kernel that does not tell
        return 0.0
    return max(0, int(lag_ms) - _STEP_MS) / 1000
