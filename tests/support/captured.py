"""Captures as they stand in a store, read without the code that is tested."""

from __future__ import annotations

import json
from typing import Any

import zstandard

from evalcore.storage.store import ObjectStore


def pending_bytes(store: ObjectStore, dataset: str = "support") -> bytes:
    """Return all pending captures of a dataset as JSON lines."""
    objects = [store.get(info.key).data for info in store.list(f"datasets/{dataset}/pending/")]
    return b"".join(zstandard.ZstdDecompressor().decompress(data) for data in objects)


def pending_records(store: ObjectStore, dataset: str = "support") -> list[dict[str, Any]]:
    """Return all pending captures of a dataset."""
    return [json.loads(line) for line in pending_bytes(store, dataset).splitlines()]
