"""A dataset in the store: immutable versions of cases, and the records that make and drop them.

A record either adds a version or drops earlier ones. Both take the next number with If-None-Match,
so that the records of a dataset are one sequence, whichever processes write them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from evalcore.datasets.reference import LATEST, DatasetReference
from evalcore.errors import ObjectNotFoundError, RunConflictError, StoreError, UsageError
from evalcore.planning.spool import ZstdFrameError, compress_frame, decompress_frame
from evalcore.storage.layout import DATASETS_PREFIX, DatasetKeys, NameKey, suite_key
from evalcore.storage.store import ObjectStore, swap
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


PART_CASES: Final = 5_000
_PART_BYTES: Final = 8 * 1024 * 1024


def encode_case(case: Mapping[str, Any]) -> bytes:
    """Return a case's line: equal cases have equal lines, in whichever order their fields came."""
    # The sum is a copy of its exact size: what orjson returns keeps a buffer of 4 KiB.
    return orjson.dumps(dict(case), option=orjson.OPT_SORT_KEYS) + b"\n"


def content_id(value: Any) -> str:
    """Return the SHA-256 of a JSON value in hex."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def part_lines(store: ObjectStore, part: CasePart) -> list[bytes]:
    """Return the lines of one part; raise `StoreError` if it is not what was written."""
    try:
        data = decompress_frame(store.get(part.key).data)
    except ZstdFrameError as error:
        raise StoreError(f"{part.key} {error}") from error
    if hashlib.sha256(data).hexdigest() != part.sha256:
        raise StoreError(f"{part.key} is damaged: its content is not what its version names")
    return data.splitlines(keepends=True)


def version_lines(store: ObjectStore, version: DatasetVersion) -> Iterator[bytes]:
    """Yield the lines of all cases in order; one part is in memory at a time."""
    for part in version.parts:
        yield from part_lines(store, part)


def version_cases(
    store: ObjectStore, version: DatasetVersion, *, offset: int = 0, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the cases of a version from `offset` on; parts before it are not read."""
    left = limit if limit is not None else version.cases
    for part in version.parts:
        if offset >= part.cases:
            offset -= part.cases
            continue
        if left <= 0:
            return
        for line in part_lines(store, part)[offset : offset + left]:
            yield orjson.loads(line)
            left -= 1
        offset = 0


class PartWriter:
    """Writes lines as parts of the version with this number."""

    def __init__(self, store: ObjectStore, keys: DatasetKeys, version: int) -> None:
        self._store, self._keys, self._version = store, keys, version
        self._lines: list[bytes] = []
        self._size = 0
        self._parts: list[CasePart] = []
        self._whole = hashlib.sha256()
        self.cases = 0

    def add(self, lines: Iterable[bytes]) -> None:
        """Add lines in order; a full part is written at once."""
        for line in lines:
            self._lines.append(line)
            self._size += len(line)
            if len(self._lines) >= PART_CASES or self._size >= _PART_BYTES:
                self._write()

    def keep(self, part: CasePart, lines: Iterable[bytes]) -> None:
        """Take over a part of an earlier version as it is; `lines` are its lines."""
        self._write()
        for line in lines:
            self._whole.update(line)
        self._parts.append(part)
        self.cases += part.cases

    def finish(self) -> tuple[tuple[CasePart, ...], str]:
        """Write what is left; return the parts and the SHA-256 of all lines."""
        self._write()
        return tuple(self._parts), self._whole.hexdigest()

    def _write(self) -> None:
        if not self._lines:
            return
        data = b"".join(self._lines)
        sha256 = hashlib.sha256(data).hexdigest()
        key = self._keys.part(self._version, sha256)
        # One that exists has the same content: another process tries the same number.
        self._store.put_if_absent(key, compress_frame(data, level=3))
        self._parts.append(CasePart(key, len(self._lines), sha256))
        self._whole.update(data)
        self.cases += len(self._lines)
        self._lines, self._size = [], 0


_ATTEMPTS: Final = 50
Case = Mapping[str, Any]


class Committed(NamedTuple):
    """What a commit did: the version, None if there is nothing new, and how many cases changed."""

    version: DatasetVersion | None
    added: int = 0
    replaced: int = 0
    unchanged: int = 0


@dataclass(frozen=True)
class DatasetChange:
    """What a new version changes: cases to add or replace by their id.

    `lines` are the encoded cases by their ids. `captures` are the captures that the change decides
    on. An existing case with an id of `unchanging` stays as it is.
    `origin` says what makes the version.
    """

    origin: str
    lines: Mapping[str, bytes] = field(default_factory=dict)
    captures: tuple[str, ...] = ()
    unchanging: frozenset[str] = frozenset()


def lines_by_id(cases: Iterable[Case]) -> dict[str, bytes]:
    """Return cases as a change takes them."""
    return {str(case["id"]): encode_case(case) for case in cases}


# Called with the dataset as it stands; returns what is changed on top of that.
Propose = Callable[[StoredDataset], DatasetChange]


def commit(store: ObjectStore, name: str, propose: Propose) -> Committed:
    """Write the next version of a dataset; of equal content none is written.

    A case whose id exists replaces it where it stands, new ones follow in order. Reads and hashes
    the whole newest version once: about 2 s for a million cases in a local store. Raises
    `RunConflictError` if others write versions all the time.
    """
    for _ in range(_ATTEMPTS):
        dataset = read_dataset(store, name)
        written = _try(store, dataset, propose(dataset))
        if written is not None:
            return written
    raise RunConflictError(f"dataset '{name}' is changed all the time; nothing was written")


def _try(store: ObjectStore, dataset: StoredDataset, change: DatasetChange) -> Committed | None:
    """Return what was done; None if another process took the number."""
    lines = dict(change.lines)
    writer = PartWriter(store, dataset.keys, dataset.next_number)
    counts: Counter[str] = Counter()
    for part in () if dataset.newest is None else dataset.newest.parts:
        existing = part_lines(store, part)
        current = existing
        if lines:
            current = list(_merged(existing, lines, change, counts))
        if current == existing:
            writer.keep(part, existing)
        else:
            writer.add(current)
    if not (lines or counts["replaced"] or change.captures):
        return Committed(None, unchanged=counts["unchanged"])
    added = len(lines)
    writer.add(lines.values())
    parts, sha256 = writer.finish()
    record = DatasetVersion(
        dataset=dataset.name,
        version=dataset.next_number,
        sha256=sha256,
        cases=writer.cases,
        created_at=_now(),
        origin=change.origin,
        parts=parts,
        captures=change.captures,
    )
    if not write_record(store, record):
        return None
    return Committed(record, added, counts["replaced"], counts["unchanged"])


def _merged(
    existing: list[bytes], lines: dict[str, bytes], change: DatasetChange, counts: Counter[str]
) -> Iterator[bytes]:
    """Yield a part's lines with the changes; those of `lines` that are used leave it."""
    for line in existing:
        identity = orjson.loads(line)["id"]
        changed = lines.pop(identity, None)
        if changed is None:
            yield line
        elif changed == line or identity in change.unchanging:
            counts["unchanged"] += 1
            yield line
        else:
            counts["replaced"] += 1
            yield changed


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


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
        for info in list(store.list(dataset.keys.pending_prefix)):
            store.delete(info.key)
        store.delete(dataset.keys.pin)
    _delete_cases(store, dataset)
    return numbers


def pin(store: ObjectStore, name: str, version: int | None) -> None:
    """Let `latest` mean a version, with None the newest again."""
    keys = DatasetKeys(suite_key(name))

    def moved(_: bytes | None) -> bytes:
        if version is not None:
            read_dataset(store, name).find(version)
        return orjson.dumps({"schema": 1, "version": version})

    swap(store, keys.pin, moved, label=f"the pin of dataset '{name}'")


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
        sha256="",
        cases=0,
        created_at=_now(),
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


class DatasetDifference(NamedTuple):
    """Ids of cases that the later version has added, removed, changed, in its order."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


def compare_versions(
    store: ObjectStore, earlier: DatasetVersion, later: DatasetVersion
) -> DatasetDifference:
    """Return what the later version changes.

    Parts that both versions share are not read. Of the others, the ids and hashes of the cases are
    in memory.
    """
    shared = {part.key for part in earlier.parts} & {part.key for part in later.parts}
    before = _cases(store, earlier, shared)
    after = _cases(store, later, shared)
    return DatasetDifference(
        added=tuple(identity for identity in after if identity not in before),
        removed=tuple(identity for identity in before if identity not in after),
        changed=tuple(
            identity
            for identity, digest in after.items()
            if identity in before and before[identity] != digest
        ),
    )


def _cases(store: ObjectStore, version: DatasetVersion, shared: set[str]) -> dict[str, int]:
    own = replace(version, parts=tuple(part for part in version.parts if part.key not in shared))
    return {str(orjson.loads(line)["id"]): hash(line) for line in version_lines(store, own)}
