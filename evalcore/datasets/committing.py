"""New versions of a dataset, what they change, and versions that are dropped or pinned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from evalcore.datasets.case_lines import PartWriter, encode_case, part_lines, version_lines
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
Case = Mapping[str, Any]


class Committed(NamedTuple):
    """What a commit did: the version, None if there is nothing new, and how many cases changed."""

    version: DatasetVersion | None
    added: int = 0
    replaced: int = 0
    unchanged: int = 0


@dataclass(frozen=True)
class DatasetChange:
    """What a new version changes: cases to add or replace by their id, ids to remove.

    `lines` are the encoded cases by their ids. `captures` are the captures that the change decides
    on. An existing case with an id of `unchanging` stays as it is.
    `origin` says what makes the version.
    """

    origin: str
    lines: Mapping[str, bytes] = field(default_factory=dict)
    captures: tuple[str, ...] = ()
    removed: frozenset[str] = frozenset()
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
        if lines or change.removed:
            current = list(_merged(existing, lines, change, counts))
        if current == existing:
            writer.keep(part, existing)
        else:
            writer.add(current)
    if not (lines or counts["replaced"] or counts["removed"] or change.captures):
        return Committed(None, unchanged=counts["unchanged"])
    added = len(lines)
    writer.add(lines.values())
    parts, sha256 = writer.finish()
    record = DatasetVersion(
        dataset=dataset.name,
        version=dataset.next_number,
        sha256=sha256,
        cases=writer.cases,
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
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
        if identity in change.removed:
            counts["removed"] += 1
            continue
        changed = lines.pop(identity, None)
        if changed is None:
            yield line
        elif changed == line or identity in change.unchanging:
            counts["unchanged"] += 1
            yield line
        else:
            counts["replaced"] += 1
            yield changed


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
