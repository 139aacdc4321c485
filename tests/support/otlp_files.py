"""OTLP JSON as collectors write it, made by the OpenTelemetry SDK and its encoder."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer

_IDS = {"traceId", "spanId", "parentSpanId"}


def traced(program: Callable[[Tracer], None]) -> dict[str, Any]:
    """Return what a program's spans are in OTLP JSON."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    program(provider.get_tracer("application"))
    provider.shutdown()
    document: dict[str, Any] = _with_hex_ids(
        MessageToDict(encode_spans(exporter.get_finished_spans()))
    )
    return document


def json_lines(*documents: Any) -> str:
    """Return documents as a collector's file exporter writes them: one a line."""
    return "".join(f"{json.dumps(document)}\n" for document in documents)


def _with_hex_ids(value: Any) -> Any:
    """Return the document with ids in hex, as OTLP JSON has them; protobuf's JSON has Base64."""
    if isinstance(value, list):
        return [_with_hex_ids(member) for member in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64decode(member).hex() if name in _IDS else _with_hex_ids(member)
        for name, member in value.items()
    }
