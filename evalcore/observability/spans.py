"""A run as spans: run → shard → item → call, by the semantic conventions for generative AI.

All processes of a run write into one trace: its id, and that of the run's span, come from the
run's. Spans are made when what they speak of is over. Without `cover` no input, output or
message of an error is in them: a provider's message may repeat what it was asked.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.span import Span

from evalcore.model.exchange import Endpoint, ProviderError
from evalcore.observability.attributes import call_attributes, call_name, is_model, text_of
from evalcore.observability.identity import (
    GivenIds,
    parent_of,
    set_span_in_context,
    span_id_of,
    trace_id_of,
)
from evalcore.observability.log import ShardSpans
from evalcore.observability.observer import (
    CallEnded,
    CallRetried,
    ConcurrencyChanged,
    Cover,
    EventObserver,
    ItemEnded,
    RunEnded,
    RunScope,
    ShardBegun,
    ShardCommitted,
)

if TYPE_CHECKING:
    from evalcore.observability.telemetry import Telemetry

_NS = 1_000


class SpanObserver(EventObserver):
    """Makes the spans and counts the metrics of one run in this process."""

    def __init__(
        self,
        scope: RunScope,
        tracer: Tracer,
        ids: GivenIds,
        telemetry: Telemetry,
        cover: Cover | None = None,
    ) -> None:
        self._scope = scope
        self._tracer = tracer
        self._ids = ids
        self._telemetry = telemetry
        self._count = telemetry.instruments
        self._cover = cover
        self._endpoints: dict[str, Endpoint] = {}
        self._named = {"evalcore.suite": scope.suite, "evalcore.mode": scope.mode}
        self._open = ShardSpans()
        self._shards: dict[int, Span] = {}
        self._items: dict[int, int] = {}
        self._retried: dict[int, list[CallRetried]] = {}
        self._lock = threading.Lock()

    def _shard_begun(self, event: ShardBegun) -> None:
        """Open the shard's span."""
        shard, items = event
        self._open.begin(shard, items)
        parent = parent_of(self._scope.run_id, span_id_of(self._scope.run_id))
        self._telemetry.take_place()
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
        self._open.end(shard)
        span = self._shards.pop(shard, None)
        if span is not None:
            span.set_attribute("evalcore.committed", committed)
            span.end()
        outcome = "committed" if committed else "discarded"
        self._count.shards.add(1, {**self._named, "evalcore.outcome": outcome})
        self._telemetry.wait_for_room()

    def _item_ended(self, item: ItemEnded) -> None:
        """Make the item's span."""
        outcome = str(item.outcome or item.status)
        named = {**self._named, "evalcore.outcome": outcome, "evalcore.variant": item.variant}
        self._count.items.add(1, named)
        self._count.item_duration.record((item.ended_us - item.started_us) / 1e6, named)
        with self._lock:
            span_id = self._items.pop(item.number, None)
        if not self._telemetry.take_place():
            return
        parent = self._shards.get(item.shard)
        attributes: dict[str, Any] = {
            "evalcore.run.id": self._scope.run_id,
            "evalcore.shard": item.shard,
            "evalcore.item": item.number,
            "evalcore.case.id": item.case_id,
            "evalcore.iteration": item.iteration,
            "evalcore.status": str(item.status),
            "evalcore.attempts": item.attempts,
            **named,
        }
        for name, value in (
            ("evalcore.score", item.score),
            ("evalcore.reason", item.reason),
            ("evalcore.target", item.target),
        ):
            if value is not None:
                attributes[name] = value
        if self._cover is not None:
            attributes["evalcore.input"] = self._covered(item.input)
            if item.output is not None:
                attributes["evalcore.output"] = self._covered(item.output)
        span = self._start(
            f"item {item.case_id}", parent, item.started_us * _NS, span_id, attributes
        )
        if item.error is not None:
            self._fail(span, item.error.get("kind", ""), item.error.get("message", ""))
        span.end(item.ended_us * _NS)

    def _call_retried(self, retried: CallRetried) -> None:
        """Count a retry; it becomes an event of the call's span."""
        endpoint = retried.request.endpoint
        self._count.retries.add(
            1,
            {
                **self._named,
                "error.type": str(retried.error.status or retried.error.kind),
                "evalcore.provider": endpoint.provider,
            },
        )
        with self._lock:
            self._retried.setdefault(id(retried.request), []).append(retried)

    def _call_ended(self, call: CallEnded) -> None:
        """Make the call's span; the item that it belongs to gets its span later."""
        self._measure(call)
        with self._lock:
            retried = self._retried.pop(id(call.request), [])
            item = self._items.setdefault(call.item, self._ids.generate_span_id())
        if not self._telemetry.take_place():
            return
        endpoint = call.request.endpoint
        if self._cover is not None:
            self._endpoints[endpoint.base_url] = endpoint
        attributes = call_attributes(call, cover=self._cover)
        attributes |= {"evalcore.run.id": self._scope.run_id, "evalcore.item": call.item}
        shard = self._open.shard_of(call.item)
        if shard is not None:
            attributes["evalcore.shard"] = shard
        span = self._tracer.start_span(
            call_name(call.request),
            set_span_in_context(parent_of(self._scope.run_id, item)),
            SpanKind.CLIENT,
            attributes,
            start_time=call.began_ns,
        )
        for retry in retried:
            why = str(retry.error.status or retry.error.kind)
            span.add_event(
                "retry",
                {
                    "error.type": why,
                    "evalcore.attempt": retry.attempt,
                    "evalcore.delay_s": retry.delay_s,
                },
                retry.at_ns,
            )
        if isinstance(call.outcome, ProviderError):
            kind = call.outcome.status or call.outcome.kind
            self._fail(span, str(kind), call.outcome.message)
        span.end(call.ended_ns)

    def _concurrency_changed(self, event: ConcurrencyChanged) -> None:
        """Keep the number for the gauge."""
        run_id = self._scope.run_id
        named = {**self._named, "evalcore.run.id": run_id}
        self._count.set_window(run_id, event.limit, named)

    def _run_ended(self, ended: RunEnded) -> None:
        """Make the run's span, under the id that its shards know."""
        run_id = self._scope.run_id
        attributes: dict[str, Any] = {
            "evalcore.run.id": run_id,
            "evalcore.state": str(ended.state),
            **self._named,
            **{f"evalcore.items.{name}": number for name, number in ended.counts.items()},
        }
        if ended.decision is not None:
            attributes["evalcore.decision"] = str(ended.decision)
        if ended.cost_usd is not None:
            attributes["evalcore.cost_usd"] = ended.cost_usd
        self._telemetry.take_place()
        with self._ids.giving(span_id_of(run_id), trace_id_of(run_id)):
            span = self._tracer.start_span(
                f"run {self._scope.suite}",
                set_span_in_context(_NO_PARENT),
                attributes=attributes,
                start_time=_ns_of(ended.created_at),
            )
        if str(ended.decision) == "error":
            span.set_status(Status(StatusCode.ERROR, "errors prevented the decision"))
        span.end(_ns_of(ended.ended_at))

    def _start(
        self,
        name: str,
        parent: Span | None,
        start_ns: int,
        span_id: int | None,
        attributes: Mapping[str, Any],
    ) -> Span:
        run_id = self._scope.run_id
        context = set_span_in_context(parent or parent_of(run_id, span_id_of(run_id)))
        if span_id is None:
            return self._tracer.start_span(
                name, context, attributes=attributes, start_time=start_ns
            )
        with self._ids.giving(span_id):
            return self._tracer.start_span(
                name, context, attributes=attributes, start_time=start_ns
            )

    def _fail(self, span: Span, kind: str, message: str) -> None:
        span.set_attribute("error.type", kind)
        covered = None if self._cover is None else self._covered(message)
        span.set_status(Status(StatusCode.ERROR, covered or kind))
        event: dict[str, str] = {"exception.type": kind}
        span.add_event("exception", event | ({"exception.message": covered} if covered else {}))

    def _measure(self, call: CallEnded) -> None:
        """Count what a call took, used and cost; a recorded answer is no call."""
        outcome = call.outcome
        named = call_attributes(call, measured=True) | self._named
        took_s = (call.ended_ns - call.began_ns) / 1e9
        if isinstance(outcome, ProviderError):
            named["error.type"] = str(outcome.status or outcome.kind)
        elif outcome.recorded:
            return
        histogram = (
            self._count.call_duration if is_model(call.request) else self._count.http_duration
        )
        histogram.record(took_s, named)
        if isinstance(outcome, ProviderError):
            return
        for kind, tokens in zip(("input", "output"), outcome.usage[:2], strict=True):
            if tokens is not None:
                self._count.tokens.record(tokens, {**named, "gen_ai.token.type": kind})
        if outcome.cost_usd:
            self._count.cost.add(outcome.cost_usd, named)

    def _covered(self, value: Any) -> str:
        """Return a content without the secrets of the environment and of every endpoint asked."""
        if self._cover is None:
            return ""
        value = self._cover(value, None)
        for endpoint in tuple(self._endpoints.values()):
            value = self._cover(value, endpoint)
        return text_of(value)


_NO_PARENT = parent_of("", 0)


def _ns_of(moment: str) -> int:
    return int(datetime.fromisoformat(moment).timestamp() * 1e6) * _NS
