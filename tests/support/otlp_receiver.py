"""The tests' own receiver of OTLP over HTTP: decodes what arrives on loopback."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tests.support.servers import serving


@dataclass(frozen=True)
class Span:
    """A span as it came."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    began_ns: int
    ended_ns: int
    attributes: dict[str, Any]
    is_error: bool
    message: str
    events: tuple[tuple[str, dict[str, Any]], ...]


@dataclass
class Receiver:
    """What has arrived so far."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    raw: bytes = b""
    resources: list[dict[str, Any]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def named(self, start: str) -> list[Span]:
        """Return the spans whose names start so."""
        return [span for span in self.spans if span.name.startswith(start)]

    def take(self, path: str, body: bytes) -> None:
        """Decode one request."""
        with self.lock:
            self.raw += body
            if path == "/v1/traces":
                self._take_spans(ExportTraceServiceRequest.FromString(body))

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.resources.append(_attributes(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += [
                    Span(
                        span.name,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        span.kind,
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        _attributes(span.attributes),
                        span.status.code == 2,
                        span.status.message,
                        tuple((one.name, _attributes(one.attributes)) for one in span.events),
                    )
                    for span in scope.spans
                ]


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return None if kind is None else getattr(value, kind)


@contextmanager
def otlp_receiver() -> Iterator[Receiver]:
    """Run a receiver on a free port."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with serving(Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}"
        yield receiver
