"""A run in OpenTelemetry: spans run → shard → item → call, sent by OTLP over HTTP.

All processes of a run write into one trace: its id, and that of the run's span, come from the
run's. Spans are made when what they speak of is over. No input, output or message of an error is in
them: a provider's message may repeat what it was asked. Names are those of the semantic conventions
(gen_ai.*, server.*, http.*).

Imported only when it is asked for. Where to, how often and with which headers: OpenTelemetry's own
variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_BSP_*).
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import Span

from evalcore.model.exchange import ProviderError, Reply, Request
from evalcore.observability.events import (
    CallEnded,
    CallRetried,
    ItemEnded,
    Observer,
    RunEnded,
    RunScope,
    ShardBegun,
    ShardCommitted,
)
from evalcore.version import VERSION

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def trace_id_of(run_id: str) -> int:
    """Return the 128-bit id of the trace that a run is."""
    return int.from_bytes(hashlib.sha256(f"trace {run_id}".encode()).digest()[:16], "big") or 1


def span_id_of(run_id: str) -> int:
    """Return the 64-bit id of a run's own span."""
    return int.from_bytes(hashlib.sha256(f"span {run_id}".encode()).digest()[:8], "big") or 1


def parent_of(run_id: str, span_id: int) -> Span:
    """Return a span of a run, perhaps of another process, to be the parent of others."""
    context = SpanContext(trace_id_of(run_id), span_id, is_remote=True, trace_flags=_SAMPLED)
    return NonRecordingSpan(context)


class GivenIds(RandomIdGenerator):
    """Random ids, except for spans started inside `giving`."""

    def __init__(self) -> None:
        self._next_ids = threading.local()

    @contextmanager
    def giving(self, span_id: int | None, trace_id: int | None = None) -> Iterator[None]:
        """Give these ids to the span that is started inside."""
        self._next_ids.span, self._next_ids.trace = span_id, trace_id
        try:
            yield
        finally:
            self._next_ids.span = self._next_ids.trace = None

    def generate_span_id(self) -> int:
        """Return the given id, else a random one."""
        return getattr(self._next_ids, "span", None) or super().generate_span_id()

    def generate_trace_id(self) -> int:
        """Return the given id, else a random one."""
        return getattr(self._next_ids, "trace", None) or super().generate_trace_id()


_PARAMETERS = {
    "temperature": "gen_ai.request.temperature",
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}


def is_model(request: Request) -> bool:
    """Whether a model is asked, rather than anything else over HTTP."""
    return request.endpoint.protocol != "http"


def call_name(request: Request) -> str:
    """Return the name of a call's span: `chat gpt-4o`, or the method of an HTTP request."""
    if is_model(request):
        return f"chat {request.model}".rstrip()
    return str(request.parameters.get("method") or "GET").upper()


def call_attributes(call: CallEnded) -> dict[str, Any]:
    """Return a call's attributes.

    Of an address only host and port are told: path and query may hold secrets.
    """
    request, outcome = call.request, call.outcome
    attributes = _address_attributes(request)
    if is_model(request):
        attributes |= _request_attributes(request)
    else:
        attributes["http.request.method"] = call_name(request)
    reply = outcome if isinstance(outcome, Reply) else None
    if reply is not None:
        attributes |= _reply_attributes(reply, model=is_model(request))
    elif isinstance(outcome, ProviderError):
        attributes["evalcore.attempts"] = outcome.attempts
        if outcome.status is not None:
            attributes["http.response.status_code"] = outcome.status
    return attributes


def _address_attributes(request: Request) -> dict[str, Any]:
    attributes: dict[str, Any] = {"evalcore.provider": request.endpoint.provider}
    address = request.endpoint.base_url or str(request.parameters.get("url") or "")
    try:
        url = urlsplit(address)
        host, port = url.hostname, url.port
    except ValueError:
        return attributes
    if host:
        attributes["server.address"] = host
        port = port or {"https": 443, "http": 80}.get(url.scheme)
    if port:
        attributes["server.port"] = port
    return attributes


def _request_attributes(request: Request) -> dict[str, Any]:
    protocol = request.endpoint.protocol
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": protocol,
        # What it was called before; many receivers know only this.
        "gen_ai.system": protocol,
        "gen_ai.request.model": request.model,
    }
    for name, attribute in _PARAMETERS.items():
        value = request.parameters.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            attributes[attribute] = value
    return attributes


def _reply_attributes(reply: Reply, *, model: bool) -> dict[str, Any]:
    measures = {
        "evalcore.attempts": reply.attempts,
        "evalcore.recorded": reply.recorded,
        "http.response.status_code": reply.status,
        "gen_ai.usage.input_tokens": reply.usage.input_tokens,
        "gen_ai.usage.output_tokens": reply.usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": reply.usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": reply.usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": reply.usage.reasoning_tokens,
        "evalcore.cost_usd": reply.cost_usd,
        "evalcore.latency_ms": reply.latency_ms,
        "evalcore.ttft_ms": reply.ttft_ms,
    }
    attributes: dict[str, Any] = _measured(measures)
    if model and reply.model:
        attributes["gen_ai.response.model"] = reply.model
    if model and reply.finish_reason:
        attributes["gen_ai.response.finish_reasons"] = (reply.finish_reason,)
    return attributes


def _measured(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


_NS = 1_000


class SpanObserver(Observer):
    """Makes the spans of one run in this process."""

    def __init__(self, scope: RunScope, telemetry: Telemetry) -> None:
        self._scope = scope
        self._tracer = telemetry.tracer
        self._ids = telemetry.ids
        self._named = {"evalcore.suite": scope.suite, "evalcore.mode": scope.mode}
        self._shards: dict[int, Span] = {}
        self._items: dict[int, int] = {}
        self._retried: dict[int, list[CallRetried]] = {}
        self._lock = threading.Lock()
        self.handlers = {
            ShardBegun: self._shard_begun,
            ShardCommitted: self._shard_committed,
            ItemEnded: self._item_ended,
            CallRetried: self._call_retried,
            CallEnded: self._call_ended,
            RunEnded: self._run_ended,
        }

    def _shard_begun(self, event: ShardBegun) -> None:
        """Open the shard's span."""
        shard, items = event
        parent = parent_of(self._scope.run_id, span_id_of(self._scope.run_id))
        self._shards[shard] = self._tracer.start_span(
            f"shard {shard}",
            set_span_in_context(parent),
            attributes={
                "evalcore.run.id": self._scope.run_id,
                "evalcore.shard": shard,
                "evalcore.items": len(items),
                **self._named,
            },
        )

    def _shard_committed(self, event: ShardCommitted) -> None:
        """End the shard's span."""
        shard, _, committed = event
        span = self._shards.pop(shard, None)
        if span is not None:
            span.set_attribute("evalcore.committed", committed)
            span.end()

    def _item_ended(self, item: ItemEnded) -> None:
        """Make the item's span."""
        with self._lock:
            span_id = self._items.pop(item.number, None)
        parent = self._shards.get(item.shard)
        attributes: dict[str, Any] = {
            "evalcore.run.id": self._scope.run_id,
            "evalcore.shard": item.shard,
            "evalcore.item": item.number,
            "evalcore.case.id": item.case_id,
            "evalcore.iteration": item.iteration,
            "evalcore.variant": item.variant,
            "evalcore.status": str(item.status),
            "evalcore.outcome": str(item.outcome or item.status),
            "evalcore.attempts": item.attempts,
            "evalcore.score": item.score,
            "evalcore.reason": item.reason,
            "evalcore.target": item.target,
            **self._named,
        }
        run_id = self._scope.run_id
        context = set_span_in_context(parent or parent_of(run_id, span_id_of(run_id)))
        with self._ids.giving(span_id):
            span = self._tracer.start_span(
                f"item {item.case_id}",
                context,
                attributes=_measured(attributes),
                start_time=item.started_us * _NS,
            )
        if item.error is not None:
            _fail(span, item.error.get("kind", ""))
        span.end(item.ended_us * _NS)

    def _call_retried(self, retried: CallRetried) -> None:
        """Keep a retry, which becomes an event of the call's span."""
        with self._lock:
            self._retried.setdefault(id(retried.request), []).append(retried)

    def _call_ended(self, call: CallEnded) -> None:
        """Make the call's span; the item that it belongs to gets its span later."""
        with self._lock:
            retried = self._retried.pop(id(call.request), [])
            item = self._items.setdefault(call.item, self._ids.generate_span_id())
        attributes = call_attributes(call)
        attributes |= {"evalcore.run.id": self._scope.run_id, "evalcore.item": call.item}
        span = self._tracer.start_span(
            call_name(call.request),
            set_span_in_context(parent_of(self._scope.run_id, item)),
            SpanKind.CLIENT,
            attributes,
            start_time=call.began_ns,
        )
        for retry in retried:
            told = {"evalcore.attempt": retry.attempt, "evalcore.delay_s": retry.delay_s}
            span.add_event("retry", {"error.type": _type(retry.error), **told}, retry.at_ns)
        if isinstance(call.outcome, ProviderError):
            _fail(span, _type(call.outcome))
        span.end(call.ended_ns)

    def _run_ended(self, ended: RunEnded) -> None:
        """Make the run's span, under the id that its shards know."""
        run_id = self._scope.run_id
        attributes: dict[str, Any] = {
            "evalcore.run.id": run_id,
            "evalcore.state": str(ended.state),
            **self._named,
            **{f"evalcore.items.{name}": number for name, number in ended.counts.items()},
            "evalcore.decision": None if ended.decision is None else str(ended.decision),
            "evalcore.cost_usd": ended.cost_usd,
        }
        with self._ids.giving(span_id_of(run_id), trace_id_of(run_id)):
            span = self._tracer.start_span(
                f"run {self._scope.suite}",
                set_span_in_context(_NO_PARENT),
                attributes=_measured(attributes),
                start_time=_ns_of(ended.created_at),
            )
        if str(ended.decision) == "error":
            span.set_status(Status(StatusCode.ERROR, "errors prevented the decision"))
        span.end(_ns_of(ended.ended_at))


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))
    span.add_event("exception", {"exception.type": kind})


_NO_PARENT = parent_of("", 0)


def _type(error: ProviderError) -> str:
    return str(error.status or error.kind)


def _ns_of(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1e6) * _NS


_QUEUE_SPANS = 50_000


class Telemetry:
    """Spans of this process; what is left is sent when the process ends."""

    def __init__(self) -> None:
        resource = Resource.create(
            {"service.name": os.environ.get("OTEL_SERVICE_NAME", "evalcore")}
            | {"service.version": VERSION}
        )
        self.ids = GivenIds()
        tracers = TracerProvider(resource=resource, id_generator=self.ids)
        queue = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or _QUEUE_SPANS)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), max_queue_size=queue))
        self.tracer = tracers.get_tracer("evalcore", VERSION)

    def observer(self, scope: RunScope) -> SpanObserver:
        """Return the observer of one run."""
        return SpanObserver(scope, self)


@lru_cache(maxsize=1)
def telemetry() -> Telemetry:
    """Return the process's telemetry, made when it is first asked for."""
    return Telemetry()
