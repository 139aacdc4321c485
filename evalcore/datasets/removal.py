"""Versions and whole datasets that are dropped, and the version that `latest` is pinned to."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import orjson

from evalcore.datasets.versions import (
    DatasetVersion,
    StoredDataset,
    parse_pin,
    read_dataset,
    write_record,
)
from evalcore.errors import RunConflictError, UsageError
from evalcore.storage.layout import DatasetKeys, suite_key
from evalcore.storage.store import ObjectStore, swap

_ATTEMPTS: Final = 50
_NO_CASES: Final = ""


def drop(store: ObjectStore, name: str, version: int | None = None) -> tuple[int, ...]:
    """Drop a version, or with None the dataset with its captures; return the versions dropped.

    A record says so first, so that no later version builds on it; then the cases that no other
    version has are deleted. Dropping again deletes what an interrupted drop has left. Numbers are
    never used again, and captures that were decided on never wait again.
    """
    for _ in range(_ATTEMPTS):
        dataset = read_dataset(store, name)
        numbers = _numbers(dataset, version)
        if not numbers or _record_drop(store, dataset, numbers):
            break
    else:
        raise RunConflictError(f"dataset '{name}' is changed all the time; nothing was dropped")
    dataset = read_dataset(store, name)
    if version is None:
        for prefix in (dataset.keys.pending_prefix,):
            for info in list(store.list(prefix)):
                store.delete(info.key)
        store.delete(dataset.keys.pin)
    _delete_cases(store, dataset)
    return numbers


def pin(store: ObjectStore, name: str, version: int | None) -> int | None:
    """Let `latest` mean a version, with None the newest again; return what it meant before."""
    keys = DatasetKeys(suite_key(name))
    before: int | None = None

    def moved(data: bytes | None) -> bytes:
        nonlocal before
        if version is not None:
            read_dataset(store, name).find(version)
        before = None if data is None else parse_pin(data, keys.pin)
        return orjson.dumps({"schema": 1, "version": version})

    swap(store, keys.pin, moved, label=f"the pin of dataset '{name}'")
    return before


def _numbers(dataset: StoredDataset, version: int | None) -> tuple[int, ...]:
    if version is None:
        return tuple(each.version for each in dataset.versions)
    if any(version in record.drops for record in dataset.records):
        return ()
    dataset.find(version)
    if dataset.pinned == version:
        raise UsageError(
            f"'latest' of dataset '{dataset.name}' is pinned to version {version}; release it "
            f"first: evalcore dataset pin {dataset.name} --release"
        )
    return (version,)


def _record_drop(store: ObjectStore, dataset: StoredDataset, numbers: tuple[int, ...]) -> bool:
    record = DatasetVersion(
        dataset=dataset.name,
        version=dataset.next_number,
        sha256=_NO_CASES,
        cases=0,
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        origin="drop",
        drops=numbers,
    )
    return write_record(store, record)


def _delete_cases(store: ObjectStore, dataset: StoredDataset) -> None:
    """Delete the cases in folders of dropped versions that no other version names."""
    used = {part.key for version in dataset.versions for part in version.parts}
    dropped = {number for record in dataset.records for number in record.drops}
    for number in sorted(dropped):
        for info in list(store.list(dataset.keys.version_folder(number))):
            if info.key.endswith(".jsonl.zst") and info.key not in used:
                store.delete(info.key)
