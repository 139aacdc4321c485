"""What datasets there are, and what is in them, page by page: for listings and the viewer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from evalcore.datasets.case_lines import version_cases
from evalcore.datasets.clusters import Cluster, cluster_captures
from evalcore.datasets.pending import PendingReader
from evalcore.datasets.reference import DatasetReference
from evalcore.datasets.versions import (
    DatasetVersion,
    dataset_names,
    find_version,
    read_dataset,
)
from evalcore.storage.store import ObjectStore


class DatasetSummary(NamedTuple):
    """A dataset in a list: the version that `latest` means (None: it has none) and its cases.

    `pending` counts the inputs that wait.
    """

    name: str
    version: int | None
    cases: int
    pending: int


class DatasetPage(NamedTuple):
    """Cases of a version from `offset` on, and how many it has."""

    version: DatasetVersion
    cases: tuple[dict[str, Any], ...]
    offset: int

    @property
    def total(self) -> int:
        """How many cases the version has."""
        return self.version.cases


class PendingPage(NamedTuple):
    """Clusters of pending captures from `offset` on; how many clusters and captures there are."""

    clusters: tuple[Cluster, ...]
    offset: int
    total_clusters: int
    total_captures: int


class DatasetCatalogue:
    """The datasets of a store. Pending captures are read once, and clustered when they change.

    Not for several threads at once.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.reader = PendingReader(store)
        self._clusters: dict[str, tuple[frozenset[tuple[str, int]], tuple[Cluster, ...]]] = {}

    def datasets(self) -> tuple[DatasetSummary, ...]:
        """Return the datasets that have versions or captures, by name."""
        summaries = []
        for name in dataset_names(self.store):
            dataset = read_dataset(self.store, name)
            pending = self.reader.read(dataset)
            latest = dataset.latest
            if latest is None and not pending:
                continue
            written = (
                pending[0].record.get("dataset", name) if not dataset.records else dataset.name
            )
            version, cases = (latest.version, latest.cases) if latest else (None, 0)
            summaries.append(DatasetSummary(str(written), version, cases, len(pending)))
        return tuple(summaries)

    def versions(self, name: str) -> Sequence[DatasetVersion]:
        """Return the versions of a dataset, newest first."""
        return read_dataset(self.store, name).versions[::-1]

    def cases(
        self, reference: DatasetReference, *, offset: int = 0, limit: int = 50
    ) -> DatasetPage:
        """Return a page of a version's cases; raise `UsageError` if there is no such version."""
        version = find_version(self.store, reference)
        cases = version_cases(self.store, version, offset=offset, limit=limit)
        return DatasetPage(version, tuple(cases), offset)

    def pending(self, name: str, *, offset: int = 0, limit: int = 20) -> PendingPage:
        """Return a page of clusters of the captures that wait."""
        captures = self.reader.read(read_dataset(self.store, name))
        state = frozenset((capture.id, capture.times) for capture in captures)
        before = self._clusters.get(name)
        if before is None or before[0] != state:
            before = self._clusters[name] = (state, cluster_captures(captures))
        clusters = before[1]
        page = clusters[offset : offset + limit]
        return PendingPage(page, offset, len(clusters), len(captures))
