"""A remote store in a folder that counts what is asked of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from evalcore.storage.local import LocalStore
from evalcore.storage.store import ObjectInfo, StoredObject


class CountingStore(LocalStore):
    """Counts requests as S3 does (PUT, GET, HEAD, LIST, DELETE), by the part of a run's folder."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.requests: Counter[str] = Counter()

    @property
    def is_remote(self) -> bool:
        return True

    def local_path(self, key: str) -> None:  # type: ignore[override]
        return None

    def get(self, key: str) -> StoredObject:
        self._count("GET", key)
        return super().get(key)

    def exists(self, key: str) -> bool:
        self._count("HEAD", key)
        return super().exists(key)

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        self._count("PUT", key)
        return super().put(key, data)

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        self._count("PUT", key)
        return super().put_if_absent(key, data)

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        self._count("PUT", key)
        return super().compare_and_swap(key, data, etag)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._count("LIST", prefix)
        return super().list(prefix)

    def list_folders(self, prefix: str) -> Iterator[str]:
        self._count("LIST", prefix)
        return super().list_folders(prefix)

    def delete(self, key: str) -> None:
        self._count("DELETE", key)
        super().delete(key)

    def taken(self) -> dict[str, int]:
        """Return the requests since the last call: by kind and part, `GET plan`."""
        counted = dict(sorted(self.requests.items()))
        self.requests.clear()
        return counted

    def part_of(self, key: str) -> str:
        """Return the part of a run's folder that a key belongs to, `plan`."""
        folders = key.split("/")
        return folders[3] if folders[0] == "runs" and len(folders) > 3 else folders[0]

    def _count(self, kind: str, key: str) -> None:
        self.requests[f"{kind} {self.part_of(key)}"] += 1
