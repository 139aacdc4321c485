"""A model server that does nothing but answer after a constant time.

    python -m benchmarks.constant_model --port 8123 --latency-ms 200

It speaks as much of OpenAI's chat completions as a benchmark needs, and costs so little (about 40
µs a request) that what is measured is the client. It prints its base URL when the port is open.
"""

from __future__ import annotations

import argparse
import asyncio
import json

_END_OF_HEAD = b"\r\n\r\n"


class _Connection(asyncio.Protocol):
    """Answers each request `latency_s` after its last byte; echoes the last message."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._received = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer what is complete."""
        self._received += data
        while (request := self._complete_request()) is not None:
            answer = _response(json.loads(request))
            self._loop.call_later(self._latency_s, self._transport.write, answer)

    def _complete_request(self) -> bytes | None:
        """Return the body of the next request and forget it; None if more is to come."""
        head, separator, rest = self._received.partition(_END_OF_HEAD)
        if not separator:
            return None
        headers = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in headers if line.startswith(b"content-length:"))
        if len(rest) < length:
            return None
        self._received = rest[length:]
        return rest[:length]


def _response(question: dict[str, object]) -> bytes:
    messages = question["messages"]
    assert isinstance(messages, list)
    text = messages[-1]["content"]
    words = len(text.split())
    usage = {"prompt_tokens": words, "completion_tokens": words, "total_tokens": 2 * words}
    common = {"id": "constant", "created": 0, "model": question["model"]}
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "finish_reason": "stop"}
    if question.get("stream"):
        common["object"] = "chat.completion.chunk"
        chunks = [
            {**common, "choices": [{**choice, "delta": message}]},
            {**common, "choices": [], "usage": usage},
        ]
        lines = [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
        return _http("text/event-stream", "".join(f"data: {line}\n\n" for line in lines))
    common["object"] = "chat.completion"
    answer = {**common, "choices": [{**choice, "message": message}], "usage": usage}
    return _http("application/json", json.dumps(answer))


def _http(kind: str, text: str) -> bytes:
    body = text.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _serve(port: int, latency_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Connection(latency_s), "127.0.0.1", port, backlog=2048
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.latency_ms / 1000))
