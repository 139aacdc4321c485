"""Structured log lines on standard error, each with the ids of run, shard and item."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import orjson

from evalcore.model.exchange import ErrorKind, ProviderError
from evalcore.observability.events import (
    BUDGET,
    CallEnded,
    CallRetried,
    ExecutionBegun,
    ItemEnded,
    Observer,
    RunEnded,
    RunScope,
    ShardBegun,
    ShardCommitted,
)
from evalcore.redaction.redactor import PROCESS
from evalcore.settings import LOG_LEVELS

Write = Callable[[str], object]

# Foreign text (an error's message) is cut to this.
_LONGEST_TEXT = 2_000


class LogObserver(Observer):
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
        self._budget_told = False
        self.handlers = {
            ExecutionBegun: self._execution_begun,
            ShardBegun: self._shard_begun,
            ShardCommitted: self._shard_committed,
            ItemEnded: self._item_ended,
            CallRetried: self._call_retried,
            CallEnded: self._call_ended,
            RunEnded: self._run_ended,
        }

    def _execution_begun(self, event: ExecutionBegun) -> None:
        self._write_line("info", "run.executing", **event._asdict(), mode=self._scope.mode)

    def _shard_begun(self, event: ShardBegun) -> None:
        self._write_line("info", "shard.begun", shard=event.shard, items=len(event.items))

    def _shard_committed(self, event: ShardCommitted) -> None:
        """Write `shard.committed`, or `shard.discarded` if another worker was first."""
        name = "shard.committed" if event.committed else "shard.discarded"
        self._write_line("info", name, shard=event.shard, items=event.items)

    def _item_ended(self, item: ItemEnded) -> None:
        """Write `item.error` or (level debug) `item.ended`; `budget.reached` once."""
        if item.reason == BUDGET and not self._budget_told:
            self._budget_told = True
            self._write_line("warning", "budget.reached", shard=item.shard, item=item.number)
        level, event = ("warning", "item.error") if item.error else ("debug", "item.ended")
        if not self._is_written(level):
            return
        error = item.error or {}
        self._write_line(
            level,
            event,
            shard=item.shard,
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

    def _call_retried(self, retried: CallRetried) -> None:
        """Write `call.refused` (429) or `call.retried`."""
        refused = retried.error.kind == ErrorKind.RATE
        self._write_line(
            "warning",
            "call.refused" if refused else "call.retried",
            **self._call(retried.item, retried),
            attempt=retried.attempt,
            delay_s=round(retried.delay_s, 3),
            **_failure(retried.error),
        )

    def _call_ended(self, call: CallEnded) -> None:
        """Write `call.failed`, or (level debug) `call.ended`."""
        duration_s = round((call.ended_ns - call.began_ns) / 1e9, 6)
        fields = self._call(call.item, call) | {"duration_s": duration_s}
        outcome = call.outcome
        if isinstance(outcome, ProviderError):
            fields |= {"attempts": outcome.attempts} | _failure(outcome)
            self._write_line("warning", "call.failed", **fields)
            return
        self._write_line(
            "debug",
            "call.ended",
            **fields,
            attempts=outcome.attempts,
            input_tokens=outcome.usage.input_tokens,
            output_tokens=outcome.usage.output_tokens,
            cost_usd=outcome.cost_usd,
            recorded=outcome.recorded,
        )

    def _run_ended(self, ended: RunEnded) -> None:
        self._write_line(
            "info",
            "run.ended",
            state=str(ended.state),
            decision=None if ended.decision is None else str(ended.decision),
            counts=dict(ended.counts) or None,
            cost_usd=ended.cost_usd,
        )

    def _call(self, item: int, event: CallEnded | CallRetried) -> dict[str, Any]:
        endpoint = event.request.endpoint
        return {
            "item": item,
            "provider": endpoint.provider,
            "model": event.request.model or None,
        }

    def _is_written(self, level: str) -> bool:
        return LOG_LEVELS.index(level) >= self._least

    def _write_line(self, level: str, event: str, **fields: Any) -> None:
        if not self._is_written(level):
            return
        ids = {"run": self._scope.run_id, "suite": self._scope.suite}
        text = log_line(level, event, ids | fields, as_json=self._json)
        with self._lock, suppress(OSError, ValueError):  # the reader has gone
            self._write(f"{text}\n")


def log_line(level: str, event: str, fields: Mapping[str, Any], *, as_json: bool) -> str:
    """Return a line without its end; fields that are None are left out, secrets are masked."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    written = {key: _cut(value) for key, value in fields.items() if value is not None}
    if as_json:
        return orjson.dumps({"time": now, "level": level, "event": event} | written).decode()
    pairs = " ".join(f"{key}={_plain(value)}" for key, value in written.items())
    return f"{now} {level:<7} {event} {pairs}"


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
