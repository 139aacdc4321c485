"""The rows of a run's committed shards, read back for the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from evalcore.planning.codec import decode_evidence
from evalcore.sql.rows import read_item_rows
from evalcore.storage.layout import blob_key
from evalcore.storage.runs import StoredRun


def stored_items(run: StoredRun, done: set[int]) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the committed shards that are not `done`, each with its rows."""
    shards = run.written_shards() - done
    if not shards:
        return
    plan = run.manifest().plan
    for shard in sorted(shards):
        with run.result_files(plan, [shard]) as files:
            rows = [row for file in files for row in read_item_rows(file, range(plan.items))]
        yield shard, rows


def details_of(run: StoredRun, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of a row's evidence; {} without any."""
    text = row["evidence"]
    if row["evidence_ref"] is not None:
        text = run.store.get(blob_key(row["evidence_ref"])).data
    return {} if text is None else decode_evidence(orjson.loads(text)).details


def error_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Return why a row has no output, as the wire says it."""
    error = row["error"] or {}
    return {
        "code": str(error.get("kind") or row["status"]),
        "message": str(error.get("message") or row["reason"] or row["status"]),
    }


def time_of(microseconds: int | None) -> datetime:
    """Return a row's time; now where it has none."""
    if microseconds is None:
        return datetime.now(UTC)
    return datetime.fromtimestamp(microseconds / 1e6, UTC)
