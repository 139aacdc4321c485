"""A new version of a dataset: cases added or replaced, written so that nothing is lost.

The cases are written first, the version's record last and only if its number is free: a process
that dies leaves the earlier versions as they are, and of two at once the second begins again on
top of the first one's version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import orjson

from evalcore.datasets.case_lines import PartWriter, encode_case, part_lines
from evalcore.datasets.versions import (
    DatasetVersion,
    StoredDataset,
    read_dataset,
    write_record,
)
from evalcore.errors import RunConflictError
from evalcore.storage.store import ObjectStore

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
    replaced = removed = unchanged = 0
    for part, existing in _newest_parts(store, dataset):
        ids = [orjson.loads(line)["id"] for line in existing] if lines or change.removed else []
        current, changes = _merged(existing, ids, lines, change)
        replaced += changes.replaced
        removed += changes.removed
        unchanged += changes.unchanged
        if current == existing:
            writer.keep(part, existing)
        else:
            writer.add(current)
    if not (lines or replaced or removed or change.captures):
        return Committed(None, unchanged=unchanged)
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
    return Committed(record, added, replaced, unchanged)


class _Changes(NamedTuple):
    replaced: int
    removed: int
    unchanged: int


def _merged(
    existing: list[bytes], ids: list[str], lines: dict[str, bytes], change: DatasetChange
) -> tuple[list[bytes], _Changes]:
    """Return a part's lines with the changes; those of `lines` that are used leave it."""
    current: list[bytes] = []
    replaced = removed = unchanged = 0
    for position, line in enumerate(existing):
        identity = ids[position] if ids else ""
        if identity in change.removed:
            removed += 1
            continue
        changed = lines.pop(identity, None) if ids else None
        if changed is not None and identity in change.unchanging:
            changed = line
        if changed is not None and changed != line:
            replaced += 1
        elif changed is not None:
            unchanged += 1
        current.append(line if changed is None else changed)
    return current, _Changes(replaced, removed, unchanged)


def _newest_parts(store: ObjectStore, dataset: StoredDataset) -> Iterator[tuple[Any, list[bytes]]]:
    if dataset.newest is not None:
        for part in dataset.newest.parts:
            yield part, part_lines(store, part)
