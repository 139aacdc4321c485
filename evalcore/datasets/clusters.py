"""Captures in groups of similar text, so that a person looks at each kind of question once.

MinHash with banding: of each text, 63 minima over its words and pairs of words; texts that share a
band of three are candidates, and join a cluster whose first text shares at least 40 % of its words.
The cost grows with the number of texts, not with its square: about 0.2 ms a text, as each is
compared with at most 16 candidates and only its first 4 000 characters count.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evalcore.datasets.pending import PendingCapture

_LONGEST_TEXT: Final = 4_000
_MOST_SHINGLES: Final = 512
_MOST_CANDIDATES: Final = 16
_LEAST_SHARED: Final = 0.4
_BANDS: Final = 21
_ROWS: Final = 3
_PRIME: Final = np.uint64((1 << 31) - 1)
_WORD: Final = re.compile(r"[^\W_]+")
_NUMBER: Final = re.compile(r"\d+")

Minima = NDArray[np.uint64]


class Cluster(NamedTuple):
    """Captures of similar text: the one that came most often first, then by time."""

    captures: tuple[PendingCapture, ...]

    @property
    def times(self) -> int:
        """How often the inputs of the cluster came."""
        return sum(capture.times for capture in self.captures)


def cluster_captures(captures: Sequence[PendingCapture]) -> tuple[Cluster, ...]:
    """Return the captures in clusters, the most frequent first; every capture is in one."""
    factors, offsets = _permutations()
    clusters: list[list[PendingCapture]] = []
    leaders: list[frozenset[int]] = []
    buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for capture in captures:
        shingles = _shingles(text_of_input(capture.input))
        minima = _minima(shingles, factors, offsets)
        bands = [(band, row.tobytes()) for band, row in enumerate(minima.reshape(_BANDS, _ROWS))]
        number = _nearest(shingles, bands, buckets, leaders)
        if number is None:
            number = len(clusters)
            clusters.append([])
            leaders.append(shingles)
            for band in bands:
                buckets[band].append(number)
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


def _permutations() -> tuple[Minima, Minima]:
    """Return factors and offsets of the hash functions, the same in every process."""
    random = np.random.default_rng(16)
    size = (_BANDS * _ROWS, 1)
    return (
        random.integers(1, int(_PRIME), size, dtype=np.uint64),
        random.integers(0, int(_PRIME), size, dtype=np.uint64),
    )


def _minima(shingles: frozenset[int], factors: Minima, offsets: Minima) -> Minima:
    values = np.fromiter(shingles, dtype=np.uint64, count=len(shingles)) % _PRIME
    minima: Minima = ((factors * values + offsets) % _PRIME).min(axis=1)
    return minima


def _nearest(
    shingles: frozenset[int],
    bands: Sequence[tuple[int, bytes]],
    buckets: dict[tuple[int, bytes], list[int]],
    leaders: Sequence[frozenset[int]],
) -> int | None:
    """Return the cluster that shares the most with a text; None if none shares enough."""
    candidates: dict[int, None] = {}
    for band in bands:
        candidates.update(dict.fromkeys(buckets.get(band, ())[:_MOST_CANDIDATES]))
    best, best_share = None, _LEAST_SHARED
    for number in list(candidates)[:_MOST_CANDIDATES]:
        leader = leaders[number]
        share = len(shingles & leader) / len(shingles | leader)
        if share >= best_share:
            best, best_share = number, share
    return best
