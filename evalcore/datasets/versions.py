"""The versions of a dataset: records in the store, each created once and never changed.

A record either adds a version or drops earlier ones. Both take the next number with If-None-Match,
so that the records of a dataset are one sequence, whichever processes write them.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import orjson

from evalcore.datasets.reference import LATEST, DatasetReference
from evalcore.errors import ObjectNotFoundError, StoreError, UsageError
from evalcore.storage.layout import DATASETS_PREFIX, DatasetKeys, NameKey, suite_key
from evalcore.storage.store import ObjectStore
from evalcore.wording import did_you_mean, known_names

SCHEMA: Final = 1
_FETCHERS: Final = 8
_INDENTED: Final = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE


@dataclass(frozen=True, slots=True)
class CasePart:
    """One object with cases: its key, how many, and the SHA-256 of their JSON lines."""

    key: str
    cases: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DatasetVersion:
    """One record of a dataset. `created_at` is ISO 8601 in UTC.

    `sha256` is that of all JSON lines of the version, in order: versions of equal content share it.
    `captures` are the ids of the captures that the record decided on, `drops` the versions that it
    removes; a record with `drops` has no cases. `origin` says what made it.
    """

    dataset: str
    version: int
    sha256: str
    cases: int
    created_at: str
    origin: str
    parts: tuple[CasePart, ...] = ()
    captures: tuple[str, ...] = ()
    drops: tuple[int, ...] = ()
    schema: int = SCHEMA

    @property
    def reference(self) -> DatasetReference:
        """How a suite names the version."""
        return DatasetReference(self.dataset, self.version)


@dataclass(frozen=True)
class StoredDataset:
    """A dataset as it stood at one moment: all of its records, oldest first, and its pin."""

    name: str
    keys: DatasetKeys
    records: tuple[DatasetVersion, ...]
    pinned: int | None = None

    @cached_property
    def versions(self) -> tuple[DatasetVersion, ...]:
        """The versions that were not dropped, oldest first."""
        dropped = {number for record in self.records for number in record.drops}
        return tuple(
            record for record in self.records if not record.drops and record.version not in dropped
        )

    @property
    def newest(self) -> DatasetVersion | None:
        """The last version, on which the next one is based."""
        return self.versions[-1] if self.versions else None

    @property
    def latest(self) -> DatasetVersion | None:
        """What `latest` means: the pinned version, else the last one."""
        pinned = [each for each in self.versions if each.version == self.pinned]
        return pinned[0] if pinned else self.newest

    @property
    def next_number(self) -> int:
        """The number of the next record."""
        return self.records[-1].version + 1 if self.records else 1

    def decided_captures(self) -> set[str]:
        """Return the ids of the captures that became cases, of dropped versions too."""
        return {capture for record in self.records for capture in record.captures}

    def find(self, number: int | None) -> DatasetVersion:
        """Return a version (None: the latest); raise `UsageError` with those that there are."""
        if number is None:
            if self.latest is None:
                raise UsageError(
                    f"dataset '{self.name}' has no version yet: `evalcore dataset promote "
                    f"{self.name}` makes one of its pending captures"
                )
            return self.latest
        for version in self.versions:
            if version.version == number:
                return version
        existing = ", ".join(str(version.version) for version in self.versions[-10:])
        was_dropped = any(number in record.drops for record in self.records)
        reason = "was dropped" if was_dropped else "does not exist"
        hint = f"Versions: {existing}, {LATEST}." if existing else "It has no version."
        raise UsageError(f"version {number} of dataset '{self.name}' {reason}. {hint}")


def read_dataset(store: ObjectStore, name: str) -> StoredDataset:
    """Return a dataset; one that does not exist has no records."""
    keys = DatasetKeys(suite_key(name))
    numbers = sorted(int(name) for name in store.list_folders(keys.folder) if name.isdecimal())
    if len(numbers) > 1:
        with ThreadPoolExecutor(_FETCHERS) as pool:
            read = list(pool.map(lambda number: _read_record(store, keys, number), numbers))
    else:
        read = [_read_record(store, keys, number) for number in numbers]
    records = tuple(record for record in read if record is not None)
    written = records[-1].dataset if records else name
    return StoredDataset(written, keys, records, _read_pin(store, keys))


def find_version(store: ObjectStore, reference: DatasetReference) -> DatasetVersion:
    """Return a version; raise `UsageError` that names what there is instead."""
    dataset = read_dataset(store, reference.name)
    if not dataset.records:
        names = dataset_names(store)
        if suite_key(reference.name) not in map(suite_key, names):
            hint = did_you_mean(reference.name, names) or f" {known_names(names, 10)}"
            raise UsageError(f"no dataset '{reference.name}' in {store.url}.{hint}")
    return dataset.find(reference.version)


def dataset_names(store: ObjectStore) -> list[str]:
    """Return the keys of all datasets' names, decoded, in byte order.

    A name that was too long for a key is as a record of the dataset has it.
    """
    from urllib.parse import unquote

    folders = store.list_folders(DATASETS_PREFIX)
    return [_cut_name(store, name) if "~" in name else unquote(name) for name in folders]


def _cut_name(store: ObjectStore, folder: str) -> str:
    keys = DatasetKeys(NameKey(folder))
    numbers = (name for name in store.list_folders(keys.folder) if name.isdecimal())
    records = (_read_record(store, keys, int(number)) for number in numbers)
    return next((record.dataset for record in records if record is not None), folder)


def write_record(store: ObjectStore, record: DatasetVersion) -> bool:
    """Create a record; False if another one has its number."""
    keys = DatasetKeys(suite_key(record.dataset))
    key = keys.version(record.version)
    return store.put_if_absent(key, orjson.dumps(asdict(record), option=_INDENTED)) is not None


def _read_record(store: ObjectStore, keys: DatasetKeys, number: int) -> DatasetVersion | None:
    """Return a record; None if a process that was to write it stored cases only."""
    key = keys.version(number)
    try:
        data = store.get(key).data
    except ObjectNotFoundError:
        return None
    try:
        raw: dict[str, Any] = orjson.loads(data)
        if raw["schema"] != SCHEMA:
            raise StoreError(f"{key} has schema {raw['schema']}; this version reads {SCHEMA}")
        return _record_of(raw)
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{key} is no record of a dataset that can be read: {error}") from error


def _record_of(raw: Mapping[str, Any]) -> DatasetVersion:
    lists = {name: tuple(raw[name]) for name in ("captures", "drops")}
    parts = tuple(CasePart(**part) for part in raw["parts"])
    return DatasetVersion(**{**raw, **lists, "parts": parts})


def _read_pin(store: ObjectStore, keys: DatasetKeys) -> int | None:
    try:
        return parse_pin(store.get(keys.pin).data, keys.pin)
    except ObjectNotFoundError:
        return None


def parse_pin(data: bytes, key: str) -> int | None:
    """Return the version that a pin names, None for the newest; raise `StoreError` if damaged."""
    try:
        version: int | None = orjson.loads(data)["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{key} is no pin that can be read: {error}") from error
    return version
