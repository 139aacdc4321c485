"""Ids of spans that every process of a run can compute: all of a run is one trace."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import Span

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
    def giving(self, span_id: int, trace_id: int | None = None) -> Iterator[None]:
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


__all__ = ["GivenIds", "parent_of", "set_span_in_context", "span_id_of", "trace_id_of"]
