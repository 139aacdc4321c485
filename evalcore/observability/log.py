"""Structured log lines on standard error, each with the ids of run, shard and item."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import orjson

from evalcore.model.exchange import ErrorKind, ProviderError
from evalcore.observability.observer import (
    BUDGET,
    CallEnded,
    CallRetried,
    ItemEnded,
    RunEnded,
    RunScope,
)
from evalcore.redaction.redactor import PROCESS
from evalcore.settings import LOG_LEVELS

Write = Callable[[str], object]

# Foreign text (an error's message) is cut to this.
_LONGEST_TEXT = 2_000


class LogObserver:
    """Writes a line for each event: JSON with `time`, `level`, `event`, or the same as text.

    A line is written at once and whole, so that lines of several threads do not mix.
    """

    def __init__(
        self, scope: RunScope, form: str, level: str = "info", write: Write | None = None
    ) -> None:
        self._scope = scope
        self._json = form == "json"
        self._least = LOG_LEVELS.index(level)
        self._write = write or _write_to_stderr
        self._lock = threading.Lock()
        self._open = OpenShards()
        self._budget_told = False
        self._limit: int | None = None

    def execution_begun(self, items: int, shards: int) -> None:
        """Write `run.executing`."""
        mode = self._scope.mode
        self._tell("info", "run.executing", items=items, shards=shards, mode=mode)

    def shard_begun(self, shard: int, items: Sequence[int]) -> None:
        """Write `shard.begun`."""
        self._open.begin(shard, items)
        self._tell("info", "shard.begun", shard=shard, items=len(items))

    def shard_committed(self, shard: int, items: int, *, committed: bool) -> None:
        """Write `shard.committed`, or `shard.discarded` if another worker was first."""
        event = "shard.committed" if committed else "shard.discarded"
        took_s = self._open.end(shard)
        duration_s = None if took_s is None else round(took_s, 3)
        self._tell("info", event, shard=shard, items=items, duration_s=duration_s)

    def item_ended(self, shard: int, item: ItemEnded) -> None:
        """Write `item.error` or (level debug) `item.ended`; `budget.reached` once."""
        if item.reason == BUDGET and not self._budget_told:
            self._budget_told = True
            self._tell("warning", "budget.reached", shard=shard, item=item.number)
        level, event = ("warning", "item.error") if item.error else ("debug", "item.ended")
        if not self._is_told(level):
            return
        error = item.error or {}
        self._tell(
            level,
            event,
            shard=shard,
            item=item.number,
            case=item.case_id,
            variant=item.variant,
            iteration=item.iteration,
            status=str(item.status),
            outcome=None if item.outcome is None else str(item.outcome),
            reason=item.reason,
            attempts=item.attempts,
            duration_s=round((item.ended_us - item.started_us) / 1e6, 6),
            kind=error.get("kind"),
            error=error.get("message"),
        )

    def call_retried(self, retried: CallRetried) -> None:
        """Write `call.refused` (429) or `call.retried`."""
        refused = retried.error.kind == ErrorKind.RATE
        self._tell(
            "warning",
            "call.refused" if refused else "call.retried",
            **self._call(retried.item, retried),
            attempt=retried.attempt,
            delay_s=round(retried.delay_s, 3),
            **_failure(retried.error),
        )

    def call_ended(self, call: CallEnded) -> None:
        """Write `call.failed`, or (level debug) `call.ended`."""
        duration_s = round((call.ended_ns - call.began_ns) / 1e9, 6)
        fields = self._call(call.item, call) | {"duration_s": duration_s}
        outcome = call.outcome
        if isinstance(outcome, ProviderError):
            fields |= {"attempts": outcome.attempts} | _failure(outcome)
            self._tell("warning", "call.failed", **fields)
            return
        self._tell(
            "debug",
            "call.ended",
            **fields,
            attempts=outcome.attempts,
            input_tokens=outcome.usage.input_tokens,
            output_tokens=outcome.usage.output_tokens,
            cost_usd=outcome.cost_usd,
            recorded=outcome.recorded,
        )

    def window_changed(self, limit: int) -> None:
        """Write (level debug) `window.changed`."""
        if limit != self._limit:
            self._limit = limit
            self._tell("debug", "window.changed", concurrency=limit)

    def run_ended(self, ended: RunEnded) -> None:
        """Write `run.ended`."""
        self._tell(
            "info",
            "run.ended",
            state=str(ended.state),
            decision=None if ended.decision is None else str(ended.decision),
            counts=dict(ended.counts) or None,
            cost_usd=ended.cost_usd,
        )

    def _call(self, item: int, told: CallEnded | CallRetried) -> dict[str, Any]:
        endpoint = told.request.endpoint
        return {
            "shard": self._open.shard_of(item),
            "item": item,
            "provider": endpoint.provider,
            "model": told.request.model or None,
        }

    def _is_told(self, level: str) -> bool:
        return LOG_LEVELS.index(level) >= self._least

    def _tell(self, level: str, event: str, **fields: Any) -> None:
        if not self._is_told(level):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        ids = {"run": self._scope.run_id, "suite": self._scope.suite}
        kept = {key: _cut(value) for key, value in fields.items() if value is not None}
        if self._json:
            line = orjson.dumps({"time": now, "level": level, "event": event} | ids | kept)
            text = line.decode()
        else:
            pairs = " ".join(f"{key}={_plain(value)}" for key, value in (ids | kept).items())
            text = f"{now} {level:<7} {event} {pairs}"
        with self._lock, suppress(OSError, ValueError):  # nobody reads any more
            self._write(f"{text}\n")


class OpenShards:
    """Which shards are being executed here, since when, and which items are theirs."""

    def __init__(self) -> None:
        self._shards: dict[int, tuple[int, int, float]] = {}

    def begin(self, shard: int, items: Sequence[int]) -> None:
        """Note a shard and its items, which follow one another."""
        if items:
            self._shards[shard] = (items[0], items[-1], time.monotonic())

    def end(self, shard: int) -> float | None:
        """Forget a shard; return how long (seconds) it was open, None if nobody knows."""
        found = self._shards.pop(shard, None)
        return None if found is None else time.monotonic() - found[2]

    def shard_of(self, item: int) -> int | None:
        """Return the open shard that an item belongs to."""
        for shard, (first, last, _) in tuple(self._shards.items()):
            if first <= item <= last:
                return shard
        return None


def _failure(error: ProviderError) -> dict[str, Any]:
    return {"kind": str(error.kind), "status": error.status, "error": error.message}


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        value = PROCESS.message(value)
        # What UTF-8 cannot hold must not end the line that tells of it.
        value = value.encode("utf-8", "replace").decode()
        return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}…"
    return value


def _plain(value: Any) -> str:
    """Return a value for a text line: quoted where it is not one plain word."""
    if isinstance(value, str):
        plain = value.isascii() and value.isprintable() and not set(value) & set(' "=')
        return value if value and plain else orjson.dumps(value).decode()
    return orjson.dumps(value).decode()


def _write_to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
