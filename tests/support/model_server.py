"""The tests' own model provider on loopback: OpenAI- and Anthropic-compatible, scripted, counted.

In a test: `with model_server(latency_s=0.05) as server: server.base_url, server.stats()`.

Routes: `/v1/chat/completions` (Azure's is `/openai/v1/chat/completions`), `/v1/embeddings`,
`/v1/messages`, `/echo` (any method: answers with what it was sent, for the target `http`),
`GET /stats`, `POST /reset`.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

from aiohttp import web

from tests.support import model_wire as wire
from tests.support.model_wire import Answer, Question


class Failure(NamedTuple):
    """What goes wrong with one request.

    `how`: `status` (an error answer), `cut` (the connection ends in the middle of the body),
    `reset` (it ends before any answer), `invalid_json` and `empty` (200 without sense, 200 without
    choices), `slow` (the body comes after `delay_s`), `echo_key` (401 that repeats the key),
    `stream_error` and `stream_cut` (an event stream that tells an error or just ends).
    """

    status: int = 500
    how: str = "status"
    retry_after: str | None = None
    delay_s: float = 0.0
    message: str = "scripted failure"
    code: str | None = None


RATE_LIMITED = Failure(429, retry_after="0", message="too many requests")
SERVER_ERROR = Failure(500)
UNAUTHORIZED = Failure(401, message="invalid key")
CUT = Failure(how="cut")
RESET = Failure(how="reset")
INVALID_JSON = Failure(how="invalid_json")

Script = Callable[[Question], str | Answer | Failure]


def echo(question: Question) -> str:
    """Answer with the text of the last user message."""
    return question.prompt


def by_rules(rules: Mapping[str, str | Answer | Failure], otherwise: Script = echo) -> Script:
    """Answer with the first rule whose key is part of the messages' text."""

    def answer(question: Question) -> str | Answer | Failure:
        for part, given in rules.items():
            if part in question.text:
                return given
        return otherwise(question)

    return answer


@dataclass
class Stats:
    """What was served so far. `requests` counts every request to a model route, failed or not."""

    requests: int = 0
    answered: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    by_model: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Behaviour:
    """How the server answers; times in seconds.

    `failures`: the n-th request gets the n-th (None: none), those after it none. `failure_share`
    of all requests get `failure`, chosen by `seed` and the request's number. Above `most_at_once`
    requests in flight, and above `per_second` in the last second, the answer is 429. `api_key`:
    any other key is 401. `output_tokens`: said in place of the number of words. `chunk_delay_s`
    lies between the events of a streamed answer (one word each). `held_after`: the requests after
    so many are answered when a test raises `ModelServer.held_after`, or makes it None.
    """

    latency_s: float = 0.0
    script: Script = echo
    output_tokens: int | None = None
    failures: Sequence[Failure | None] = ()
    failure_share: float = 0.0
    failure: Failure = SERVER_ERROR
    seed: int = 0
    most_at_once: int | None = None
    per_second: int | None = None
    retry_after: str | None = "0.05"
    api_key: str | None = None
    chunk_delay_s: float = 0.0
    held_after: int | None = None
    keep: int = 2_000


class Seen(NamedTuple):
    """One request as it came, `at` seconds of a monotonic clock."""

    path: str
    headers: Mapping[str, str]
    body: Any
    at: float = 0.0


class ModelServer:
    """The handlers and what they count; used from one event loop, read from any thread."""

    def __init__(self, behaviour: Behaviour, port: int = 0) -> None:
        self.behaviour = behaviour
        self.port = port
        self.held_after = behaviour.held_after
        self.requests: deque[Seen] = deque(maxlen=behaviour.keep)
        self._stats = Stats()
        self._recent: deque[float] = deque()
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed: BaseException | None = None

    @property
    def url(self) -> str:
        """Return the server's root, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """Return what a target of kind `openai` or `anthropic` takes as `base_url`."""
        return f"{self.url}/v1"

    def stats(self) -> Stats:
        """Return a copy of the counts."""
        return Stats(**{one.name: copy(getattr(self._stats, one.name)) for one in fields(Stats)})

    def reset(self) -> None:
        """Begin to count anew; scripted failures begin anew, too."""
        in_flight = self._stats.in_flight
        for name, value in asdict(Stats()).items():
            setattr(self._stats, name, value)
        self._stats.in_flight = in_flight
        self.requests.clear()

    def start(self) -> None:
        """Serve in a thread; return when the port is open."""
        threading.Thread(target=self._run, name="model-server", daemon=True).start()
        if not self._ready.wait(60) or self._failed is not None:
            raise RuntimeError(f"the model server did not start: {self._failed}")

    def stop(self) -> None:
        """End the thread's loop."""
        if self._loop is not None and self._stop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)

    def _run(self) -> None:
        try:
            asyncio.run(self.serve())
        except BaseException as error:
            self._failed = error
            self._ready.set()
            raise

    async def serve(self) -> None:
        """Serve until `stop`."""
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/openai/v1/chat/completions", self._chat)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_route("*", "/echo", self._echo)
        app.router.add_get("/stats", self._show_stats)
        app.router.add_post("/reset", self._reset)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, backlog=2048).start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _show_stats(self, request: web.Request) -> web.Response:
        return web.json_response(asdict(self._stats))

    async def _reset(self, request: web.Request) -> web.Response:
        self.reset()
        return web.json_response({})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._served(request, wire.OPENAI)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        return await self._served(request, wire.ANTHROPIC)

    async def _embeddings(self, request: web.Request) -> web.StreamResponse:
        return await self._served(request, wire.EMBEDDINGS)

    async def _echo(self, request: web.Request) -> web.StreamResponse:
        return await self._served(request, wire.ECHO)

    async def _served(self, request: web.Request, protocol: wire.Wire) -> web.StreamResponse:
        stats = self._stats
        number = stats.requests
        stats.requests += 1
        stats.in_flight += 1
        stats.most_in_flight = max(stats.most_in_flight, stats.in_flight)
        try:
            body = _parsed(await request.read())
            self.requests.append(
                Seen(request.path_qs, dict(request.headers), body, time.monotonic())
            )
            failure = self._refusal(request, number)
            if self.behaviour.latency_s and failure is None:
                await asyncio.sleep(self.behaviour.latency_s)
            while self.held_after is not None and number >= self.held_after:
                await asyncio.sleep(0.01)
            question = protocol.question(body, request)
            given = self.behaviour.script(question) if failure is None else failure
            if isinstance(given, Failure):
                stats.failed += 1
                return await _failed(request, given)
            return await self._answered(request, protocol, question, given)
        finally:
            stats.in_flight -= 1

    async def _answered(
        self, request: web.Request, protocol: wire.Wire, question: Question, given: str | Answer
    ) -> web.StreamResponse:
        answer = Answer(given) if isinstance(given, str) else given
        fixed = answer.output_tokens or self.behaviour.output_tokens
        answer = answer._replace(
            input_tokens=answer.input_tokens or len(question.text.split()),
            output_tokens=len(answer.text.split()) if fixed is None else fixed,
        )
        stats = self._stats
        stats.answered += 1
        stats.input_tokens += answer.input_tokens or 0
        stats.output_tokens += answer.output_tokens or 0
        stats.by_model[question.model] = stats.by_model.get(question.model, 0) + 1
        if not question.stream:
            return web.Response(
                body=json.dumps(protocol.whole(question, answer)).encode(),
                content_type="application/json",
            )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in protocol.events(question, answer):
            await response.write(event)
            if self.behaviour.chunk_delay_s:
                await asyncio.sleep(self.behaviour.chunk_delay_s)
        await response.write_eof()
        return response

    def _refusal(self, request: web.Request, number: int) -> Failure | None:
        how = self.behaviour
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if how.api_key is not None and how.api_key not in (
            bearer,
            request.headers.get("x-api-key"),
        ):
            return UNAUTHORIZED
        if number < len(how.failures):
            return how.failures[number]
        too_many = RATE_LIMITED._replace(retry_after=how.retry_after)
        if how.most_at_once is not None and self._stats.in_flight > how.most_at_once:
            return too_many
        if how.per_second is not None:
            now = asyncio.get_running_loop().time()
            while self._recent and self._recent[0] <= now - 1:
                self._recent.popleft()
            if len(self._recent) >= how.per_second:
                return too_many
            self._recent.append(now)
        if how.failure_share and random.Random(f"{how.seed}:{number}").random() < how.failure_share:
            return how.failure
        return None


async def _failed(request: web.Request, failure: Failure) -> web.StreamResponse:
    if failure.how == "reset":
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
    if failure.how in ("cut", "slow"):
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        response.content_type = "application/json"
        await response.prepare(request)
        await response.write(b'{"id": "half')
        await asyncio.sleep(failure.delay_s)
        if request.transport is not None:
            request.transport.close()
        return response
    if failure.how in ("stream_error", "stream_cut"):
        return await _broken_stream(request, failure)
    if failure.how == "invalid_json":
        return web.Response(text="<html>not JSON</html>", content_type="text/html")
    if failure.how == "empty":
        return web.json_response({"id": "x", "object": "nothing"})
    message = failure.message
    if failure.how == "echo_key":
        message = f"bad key {request.headers.get('Authorization')}"
        message += f" {request.headers.get('x-api-key')}"
    headers = {} if failure.retry_after is None else {"Retry-After": failure.retry_after}
    error = {"message": message, "type": "scripted", "code": failure.code}
    return web.json_response({"error": error}, status=failure.status, headers=headers)


async def _broken_stream(request: web.Request, failure: Failure) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    if failure.how == "stream_error":
        error = {"message": failure.message, "type": "overloaded_error"}
        data = json.dumps({"type": "error", "error": error})
        await response.write(f"event: error\ndata: {data}\n\n".encode())
    else:
        await response.write(b'data: {"type": "ping", "choices": []}\n\n')
    await response.write_eof()
    return response


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


@contextmanager
def model_server(**behaviour: Any) -> Iterator[ModelServer]:
    """Serve as `Behaviour(**behaviour)` says on a free port (or `port`) of loopback."""
    port = behaviour.pop("port", 0)
    server = ModelServer(Behaviour(**behaviour), port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
