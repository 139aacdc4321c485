"""What is different between two versions of a dataset, by the ids of their cases."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import orjson

from evalcore.datasets.case_lines import version_lines
from evalcore.datasets.versions import DatasetVersion
from evalcore.storage.store import ObjectStore


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
