"""Captures that wait: read from the store, each input once, without those that were decided."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from evalcore.datasets.versions import StoredDataset
from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.planning.spool import ZstdFrameError, decompress_frame
from evalcore.storage.store import ObjectStore

SHOWN_ID: Final = 12
"""Characters of an id that stand in names of cases and in listings."""
_FETCHERS: Final = 16


@dataclass(frozen=True, slots=True)
class PendingCapture:
    """A captured input and its first output. `at` is ISO 8601 in UTC, of the first time.

    `id` is the SHA-256 of the input: equal inputs are one capture, which came `times` times.
    `record` is the whole line as it was captured.
    """

    id: str
    at: str
    record: Mapping[str, Any]
    times: int = 1

    @property
    def case_id(self) -> str:
        """The id of the case that the capture becomes."""
        return f"capture-{self.id[:SHOWN_ID]}"

    @property
    def input(self) -> Any:
        """The captured input."""
        return self.record.get("input")

    @property
    def output(self) -> Any:
        """The captured output; None if the call ended in an error."""
        return self.record.get("output")

    @property
    def error(self) -> Mapping[str, Any] | None:
        """Kind and message of the exception that ended the call, if one did."""
        return self.record.get("error")


class PendingReader:
    """Reads the captures that wait in a store; each of its objects once, so that pages are cheap.

    Not for several threads at once.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._batches: dict[str, tuple[dict[str, Any], ...]] = {}
        self._refused: dict[str, frozenset[str]] = {}

    def read(self, dataset: StoredDataset) -> tuple[PendingCapture, ...]:
        """Return the captures that were neither promoted nor refused, the first ones first.

        Lists the dataset's pending objects, and reads those that it has not read yet. An object
        that cannot be read raises `StoreError`.
        """
        decided = dataset.decided_captures() | self.refused(dataset)
        captures: dict[str, PendingCapture] = {}
        for record in self._records(dataset):
            identity, times = record["id"], record.get("times", 1)
            earlier = captures.get(identity)
            if earlier is not None:
                captures[identity] = replace(earlier, times=earlier.times + times)
            elif identity not in decided:
                captures[identity] = PendingCapture(identity, record["at"], record, times)
        return tuple(captures.values())

    def refused(self, dataset: StoredDataset) -> set[str]:
        """Return the ids of all captures that were refused."""
        keys = [info.key for info in self._store.list(dataset.keys.refused_prefix)]
        for key in keys:
            if key not in self._refused:
                self._refused[key] = frozenset(orjson.loads(self._store.get(key).data)["captures"])
        return {identity for key in keys for identity in self._refused[key]}

    def sweep(self, dataset: StoredDataset) -> int:
        """Delete the objects all of whose captures are decided; return how many."""
        decided = dataset.decided_captures() | self.refused(dataset)
        self._fetch(dataset)
        settled = [
            key
            for key, records in self._batches.items()
            if key.startswith(dataset.keys.pending_prefix)
            and all(record["id"] in decided for record in records)
        ]
        for key in settled:
            self._store.delete(key)
            del self._batches[key]
        return len(settled)

    def _records(self, dataset: StoredDataset) -> Iterator[dict[str, Any]]:
        for key in self._fetch(dataset):
            yield from self._batches.get(key, ())

    def _fetch(self, dataset: StoredDataset) -> list[str]:
        """Read the objects that are new; return the keys of all of them, oldest first."""
        prefix = dataset.keys.pending_prefix
        keys = [info.key for info in self._store.list(prefix)]
        missing = [key for key in keys if key not in self._batches]
        if missing:
            with ThreadPoolExecutor(_FETCHERS) as pool:
                for key, records in zip(missing, pool.map(self._batch, missing), strict=True):
                    self._batches[key] = records
        for key in set(self._batches).difference(keys):
            if key.startswith(prefix):
                del self._batches[key]
        return keys

    def _batch(self, key: str) -> tuple[dict[str, Any], ...]:
        try:
            data = decompress_frame(self._store.get(key).data)
            return tuple(orjson.loads(line) for line in data.splitlines())
        except ObjectNotFoundError:  # decided and deleted a moment ago
            return ()
        except (ZstdFrameError, ValueError) as error:
            raise StoreError(f"{key} holds no captures that can be read: {error}") from error


def write_refusal(store: ObjectStore, dataset: StoredDataset, captures: Iterable[str]) -> None:
    """Note that captures were refused; they never wait again."""
    ids = sorted(captures)
    key = dataset.keys.refused(datetime.now(UTC), secrets.token_bytes(6))
    store.put_if_absent(key, orjson.dumps({"captures": ids}))


def chosen_captures(
    pending: Collection[PendingCapture], ids: Collection[str]
) -> tuple[list[PendingCapture], list[str]]:
    """Return the captures that ids name, and the ids that name none or several.

    An id may be written as its beginning, or as the id of the case that it becomes.
    """
    chosen: list[PendingCapture] = []
    unknown = []
    for written in ids:
        bare = written.removeprefix("capture-")
        matches = [capture for capture in pending if bare and capture.id.startswith(bare)]
        if len(matches) == 1:
            chosen.append(matches[0])
        else:
            unknown.append(written)
    return list({capture.id: capture for capture in chosen}.values()), unknown
