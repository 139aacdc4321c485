"""From captured calls to objects of a store: redacted, as JSON lines, many in one object.

Runs in the writing thread only: everything that costs time or may fail happens here.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson

from evalcore.capture.calls import (
    LARGEST_CAPTURE_BYTES,
    WRITTEN,
    CaptureCall,
    CaptureSource,
    Pace,
)
from evalcore.jsonvalues import parse_storable
from evalcore.planning.spool import compress_frame
from evalcore.redaction.personal import PersonalRedactor, RedactionError
from evalcore.redaction.redactor import PROCESS, REDACTED
from evalcore.settings import read_settings
from evalcore.storage.address import open_store
from evalcore.storage.layout import DatasetKeys, suite_key
from evalcore.storage.store import ObjectStore

_LARGEST_BATCH: Final = 500
_LARGEST_BATCH_BYTES: Final = 2 * 1024 * 1024
_OLDEST_BATCH_S: Final = 5.0
_RETRY_AFTER_S: Final = 5.0
_IDLE_S: Final = 3_600.0


@dataclass
class _Batch:
    """Captures of one dataset that are not stored yet, by their id."""

    opened_at: float
    lines: dict[str, bytes] = field(default_factory=dict)
    repetitions: Counter[str] = field(default_factory=Counter)
    captures: int = 0
    size: int = 0
    retry_at: float = 0.0


class CaptureBatches:
    """Captures by store and dataset until they are written; `count` is told what became of them.

    A batch is written once it is 5 s old or large. While its store does not take it, it is tried
    again every 5 s and takes nothing more when it is full.
    """

    def __init__(self, count: Callable[[str, int], None], pace: Pace) -> None:
        """Take what counts, and the pace of all work but that of a store."""
        self._count = count
        self._pace = pace
        self._batches: dict[tuple[str | ObjectStore | None, str], _Batch] = {}
        self._stores: dict[str | None, ObjectStore] = {}
        self._redactors: dict[tuple[Any, ...], PersonalRedactor] = {}
        # The secrets of the environment are known before the first capture.
        PROCESS.learn_environment(os.environ)

    def take(self, call: CaptureCall) -> None:
        """Redact a call and add it to its batch; count it if it cannot be."""
        try:
            with self._pace:
                record = _record(call, self._redactor(call.source.redact))
                line = orjson.dumps(record)
        except RedactionError:
            self._count("redaction", 1)
        # A captured value is foreign: its capture is lost and counted, the thread goes on.
        except Exception:  # noqa: BLE001 - of values of foreign types
            self._count("failed", 1)
        else:
            if len(line) > LARGEST_CAPTURE_BYTES:
                self._count("too large", 1)
            else:
                self._add(call.source, record["id"], line)

    def _redactor(self, own: tuple[Any, ...]) -> PersonalRedactor:
        redactor = self._redactors.get(own)
        if redactor is None:
            redactor = PersonalRedactor(PROCESS, own, after_piece=self._pace.rest)
            self._redactors[own] = redactor
        return redactor

    def _add(self, source: CaptureSource, capture_id: str, line: bytes) -> None:
        key = (source.store, source.dataset)
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = _Batch(time.monotonic())
        if capture_id in batch.lines:
            batch.repetitions[capture_id] += 1
        elif _is_full(batch):
            self._count("store", 1)
            return
        else:
            batch.lines[capture_id] = line
            batch.size += len(line)
        batch.captures += 1

    def next_write_s(self) -> float:
        """Return after how many seconds a batch is due."""
        now = time.monotonic()
        due = [max(_due_at(batch) - now, 0.0) for batch in self._batches.values()]
        return min(due, default=_IDLE_S)

    def write_due(self) -> None:
        """Write the batches that are old or full enough."""
        now = time.monotonic()
        for key, batch in list(self._batches.items()):
            if _due_at(batch) <= now:
                self._write(key, batch)

    def write_all(self) -> None:
        """Write every batch, also those whose store did not take them a moment ago."""
        for key, batch in list(self._batches.items()):
            self._write(key, batch)

    def _write(self, key: tuple[str | ObjectStore | None, str], batch: _Batch) -> None:
        address, dataset = key
        try:
            with self._pace:
                keys = DatasetKeys(suite_key(dataset))
                name = keys.pending_batch(datetime.now(UTC), secrets.token_bytes(6))
                data = _frame(batch)
                store = self._store(address)
            store.put_if_absent(name, data)
        # Whichever way a store fails: the batch waits, and the caller does not notice.
        except Exception:  # noqa: BLE001 - every fault of a store
            batch.retry_at = time.monotonic() + _RETRY_AFTER_S
            return
        del self._batches[key]
        self._count(WRITTEN, batch.captures)

    def _store(self, address: str | ObjectStore | None) -> ObjectStore:
        if address is not None and not isinstance(address, str):
            return address
        store = self._stores.get(address)
        if store is None:
            settings = read_settings(os.environ, Path.cwd())
            store = self._stores[address] = open_store(address or settings.store)
        return store


def _frame(batch: _Batch) -> bytes:
    lines = dict(batch.lines)
    for capture_id, repetitions in batch.repetitions.items():
        record = orjson.loads(lines[capture_id])
        lines[capture_id] = orjson.dumps(record | {"times": 1 + repetitions})
    return compress_frame(b"".join(line + b"\n" for line in lines.values()), level=3)


def _is_full(batch: _Batch) -> bool:
    return len(batch.lines) >= _LARGEST_BATCH or batch.size >= _LARGEST_BATCH_BYTES


def _due_at(batch: _Batch) -> float:
    return max(batch.retry_at, 0.0 if _is_full(batch) else batch.opened_at + _OLDEST_BATCH_S)


def _record(call: CaptureCall, redactor: PersonalRedactor) -> dict[str, Any]:
    """Return a capture as its line says it; nothing in it is left unredacted."""
    at = datetime.fromtimestamp(call.moment, UTC).isoformat(timespec="milliseconds")
    record: dict[str, Any] = {
        "id": "",
        "dataset": call.source.dataset,
        "at": at.replace("+00:00", "Z"),
        "function": call.source.function,
        "input": redactor.value(_input(call)),
    }
    output = parse_storable(call.output)
    if call.error is not None:
        message = redactor.text(", ".join(map(str, output)))
        record["error"] = {"kind": call.error, "message": message}
    else:
        record["output"] = _chunks(output, redactor) if call.is_stream else redactor.value(*output)
        if not call.is_complete:
            record["complete"] = False
    if call.metadata:
        record["metadata"] = redactor.value(*parse_storable(call.metadata))
    identity = orjson.dumps(record["input"], option=orjson.OPT_SORT_KEYS)
    record["id"] = hashlib.sha256(identity).hexdigest()
    return record


def _input(call: CaptureCall) -> Any:
    """Return the arguments of a call by their names; one text, mapping or list by itself."""
    arguments = parse_storable(call.input)
    named = {"input": arguments[0]}
    if call.has_arguments:
        *arguments, keywords = arguments
        positional = call.source.names[1:] if call.source.has_owner else call.source.names
        numbered = [f"argument_{index + 1}" for index in range(len(arguments))]
        names = (*positional, *numbered[len(positional) :])
        named = dict(zip(names, arguments, strict=False)) | keywords
    value = next(iter(named.values())) if len(named) == 1 else named
    return value if isinstance(value, str | dict | list) else named


def _chunks(output: list[Any], redactor: PersonalRedactor) -> Any:
    if all(isinstance(chunk, str) for chunk in output):
        return redactor.value("".join(output))
    clean = redactor.value(output)
    # A key or an address may be spread over several chunks.
    whole = "".join(_texts(clean))
    return clean if redactor.text(whole) == whole else REDACTED


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    members = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return []
    return [text for member in members for text in _texts(member)]
