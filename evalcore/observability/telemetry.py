"""OpenTelemetry in this process: one provider of spans, one of metrics, sent by OTLP over HTTP.

Imported only when it is asked for. Where to, how often and with which headers: OpenTelemetry's own
variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME, OTEL_BSP_*).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import lru_cache

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from evalcore.observability.identity import GivenIds
from evalcore.observability.metrics import Instruments
from evalcore.observability.observer import Cover, RunScope
from evalcore.observability.spans import SpanObserver
from evalcore.version import VERSION

_SERVICE = "evalcore"
_QUEUE_SPANS = 50_000
# With so many waiting, the commit of a shard waits for the receiver, but not for long.
_CROWDED_SPANS = 10_000
_PATIENCE_S = 5.0
_TIMEOUT_S = 5
# A receiver that failed is left alone for so long: a run must not wait for it again and again.
_SILENCE_S = 30.0


class PatientExporter(SpanExporter):
    """Counts what was handed on, and gives up quickly while the receiver is known to fail."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._silent_until = 0.0
        self.handed = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans, or drop them."""
        try:
            if time.monotonic() < self._silent_until:
                return SpanExportResult.FAILURE
            result = self._inner.export(spans)
            if result is not SpanExportResult.SUCCESS:
                self._silent_until = time.monotonic() + _SILENCE_S
            return result
        finally:
            self.handed += len(spans)

    def shutdown(self) -> None:
        """Close the connection."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Send what the exporter itself holds back."""
        return self._inner.force_flush(timeout_millis)


class Telemetry:
    """Spans and metrics of this process; what is left is sent when the process ends."""

    def __init__(self) -> None:
        resource = Resource.create(
            {"service.name": os.environ.get("OTEL_SERVICE_NAME", _SERVICE)}
            | {"service.version": VERSION}
        )
        timeout_s = None if os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") else _TIMEOUT_S
        self._exporter = PatientExporter(OTLPSpanExporter(timeout=timeout_s))
        self._ids = GivenIds()
        self._tracers = TracerProvider(resource=resource, id_generator=self._ids)
        size = int(os.environ.get("OTEL_BSP_MAX_QUEUE_SIZE") or _QUEUE_SPANS)
        self._size = size
        self._tracers.add_span_processor(BatchSpanProcessor(self._exporter, max_queue_size=size))
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=timeout_s))
        self._meters = MeterProvider(metric_readers=[reader], resource=resource)
        self.instruments = Instruments(self._meters.get_meter("evalcore", VERSION))
        self._started = 0
        self._lock = threading.Lock()

    def observer(self, scope: RunScope, cover: Cover | None) -> SpanObserver:
        """Return the observer of one run; without `cover` no contents are told."""
        tracer = self._tracers.get_tracer("evalcore", VERSION)
        return SpanObserver(scope, tracer, self._ids, self, cover)

    def take_place(self) -> bool:
        """Whether there is room for one more span; if not, it is left out."""
        with self._lock:
            if self._started - self._exporter.handed >= self._size:
                self.instruments.dropped.add(1)
                return False
            self._started += 1
            return True

    def wait_for_room(self) -> None:
        """Wait a while where spans are made faster than they are sent. Not in an event loop."""
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            if self._started - self._exporter.handed < min(_CROWDED_SPANS, self._size):
                return
            time.sleep(0.02)


@lru_cache(maxsize=1)
def telemetry() -> Telemetry:
    """Return the process's telemetry, made when it is first asked for."""
    return Telemetry()
