"""The datasets of a store for several threads: what was read for one page serves the next."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from evalcore.datasets.committing import DatasetDifference, compare_versions
from evalcore.datasets.dataset_catalogue import (
    DatasetCatalogue,
    DatasetPage,
    DatasetSummary,
    PendingPage,
)
from evalcore.datasets.pending import PendingCapture, chosen_captures
from evalcore.datasets.promotion import Acceptance, Promoted, promote, refuse
from evalcore.datasets.reference import DatasetReference
from evalcore.datasets.versions import StoredDataset, find_version, read_dataset
from evalcore.errors import ObjectNotFoundError
from evalcore.storage.store import ObjectStore


class SharedDatasets:
    """Datasets, their versions and pending captures; one request at a time reads captures."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._catalogue = DatasetCatalogue(store)
        self._lock = threading.Lock()

    def datasets(self) -> Sequence[DatasetSummary]:
        """Return the datasets by name."""
        with self._lock:
            return self._catalogue.datasets()

    def dataset(self, name: str, *, offset: int, limit: int) -> tuple[StoredDataset, PendingPage]:
        """Return a dataset with a page of its pending captures.

        Raises `ObjectNotFoundError` for one that has neither versions nor captures.
        """
        dataset = read_dataset(self._store, name)
        with self._lock:
            pending = self._catalogue.pending(name, offset=offset, limit=limit)
        if not dataset.versions and not pending.total_captures:
            raise ObjectNotFoundError(f"There is no dataset '{name}' in this store.")
        return dataset, pending

    def cases(self, reference: DatasetReference, *, offset: int, limit: int) -> DatasetPage:
        """Return a page of a version's cases; raise `UsageError` if there is no such version."""
        return self._catalogue.cases(reference, offset=offset, limit=limit)

    def difference(self, name: str, earlier: int, later: int) -> DatasetDifference:
        """Return what one version changes of another; raise `UsageError`."""
        before, after = (
            find_version(self._store, DatasetReference(name, number)) for number in (earlier, later)
        )
        return compare_versions(self._store, before, after)

    def capture(self, name: str, identity: str) -> PendingCapture:
        """Return a pending capture; raise `ObjectNotFoundError` if it does not wait any more."""
        with self._lock:
            pending = self._catalogue.reader.read(read_dataset(self._store, name))
        captures, _ = chosen_captures(pending, [identity])
        if not captures:
            raise ObjectNotFoundError(
                f"No capture {identity} of dataset '{name}' waits: it was accepted or refused."
            )
        return captures[0]

    def accept(self, name: str, acceptances: Sequence[Acceptance]) -> Promoted:
        """Make cases of captures; raise `EvalError`."""
        with self._lock:
            return promote(self._store, name, acceptances, reader=self._catalogue.reader)

    def refuse(self, name: str, ids: Sequence[str]) -> int:
        """Refuse captures and return how many; raise `UsageError`."""
        with self._lock:
            return refuse(self._store, name, ids, reader=self._catalogue.reader)
