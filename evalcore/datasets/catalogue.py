"""What datasets there are and what is in them, in pages; captures in clusters of similar text."""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from evalcore.datasets.pending import PendingCapture, PendingReader
from evalcore.datasets.store import (
    dataset_names,
    read_dataset,
)
from evalcore.storage.store import ObjectStore

_LONGEST_TEXT: Final = 4_000
_MOST_SHINGLES: Final = 512
_MOST_CANDIDATES: Final = 16
# Words that more texts have do not tell them apart.
_MOST_HAVING: Final = 64
_LEAST_SHARED: Final = 0.4
_WORD: Final = re.compile(r"[^\W_]+")
_NUMBER: Final = re.compile(r"\d+")


class Cluster(NamedTuple):
    """Captures of similar text: the one that came most often first, then by time."""

    captures: tuple[PendingCapture, ...]

    @property
    def times(self) -> int:
        """How often the inputs of the cluster came."""
        return sum(capture.times for capture in self.captures)


def cluster_captures(captures: Sequence[PendingCapture]) -> tuple[Cluster, ...]:
    """Return the captures in clusters, the most frequent first; every capture is in one."""
    clusters: list[list[PendingCapture]] = []
    leaders: list[frozenset[int]] = []
    having: dict[int, list[int]] = defaultdict(list)
    for capture in captures:
        shingles = _shingles(text_of_input(capture.input))
        number = _nearest(shingles, having, leaders)
        if number is None:
            number = len(clusters)
            clusters.append([])
            leaders.append(shingles)
            for shingle in shingles:
                if len(having[shingle]) < _MOST_HAVING:
                    having[shingle].append(number)
        clusters[number].append(capture)
    ordered = [Cluster(tuple(sorted(each, key=_most_frequent_first))) for each in clusters]
    return tuple(sorted(ordered, key=lambda cluster: (-cluster.times, cluster.captures[0].at)))


def text_of_input(value: Any) -> str:
    """Return the texts of an input: of messages, what users wrote."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        messages = [each for each in value if isinstance(each, dict) and "role" in each]
        of_users = [each.get("content") for each in messages if each["role"] == "user"]
        return "\n".join(text_of_input(member) for member in (of_users or value))
    if isinstance(value, dict):
        return "\n".join(text_of_input(member) for member in value.values())
    return "" if value is None else str(value)


def _most_frequent_first(capture: PendingCapture) -> tuple[int, str]:
    return -capture.times, capture.at


def _shingles(text: str) -> frozenset[int]:
    """Return the words and pairs of words as numbers; digits do not tell texts apart."""
    words = _WORD.findall(_NUMBER.sub("0", text[:_LONGEST_TEXT].lower()))
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    chosen = [*words, *pairs][:_MOST_SHINGLES] or [text[:_LONGEST_TEXT]]
    return frozenset(zlib.crc32(shingle.encode("utf-8", "replace")) for shingle in chosen)


def _nearest(
    shingles: frozenset[int],
    having: Mapping[int, Sequence[int]],
    leaders: Sequence[frozenset[int]],
) -> int | None:
    """Return the cluster that shares the most with a text; None if none shares enough.

    `having` are the clusters whose leaders have a shingle.
    """
    shared = Counter(number for shingle in shingles for number in having.get(shingle, ()))
    best, best_share = None, _LEAST_SHARED
    for number, _ in shared.most_common(_MOST_CANDIDATES):
        leader = leaders[number]
        share = len(shingles & leader) / len(shingles | leader)
        if share >= best_share:
            best, best_share = number, share
    return best


class DatasetSummary(NamedTuple):
    """A dataset in a list: the version that `latest` means (None: it has none) and its cases.

    `pending` counts the inputs that wait.
    """

    name: str
    version: int | None
    cases: int
    pending: int


class PendingPage(NamedTuple):
    """Clusters of pending captures from `offset` on; how many clusters and captures there are."""

    clusters: tuple[Cluster, ...]
    offset: int
    total_clusters: int
    total_captures: int


class DatasetCatalogue:
    """The datasets of a store. Pending captures are read once, and clustered when they change."""

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
