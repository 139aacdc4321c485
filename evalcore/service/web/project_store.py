"""The part of a store that one project may see: its own suites, with all that belongs to them.

Pages read through it, so that no page has to ask whose a run is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.storage.layout import NameKey, suite_key
from evalcore.storage.store import ObjectInfo, ObjectStore, StoredObject

# Below these a suite's objects stand in a folder with the key of its name.
_OF_SUITES: Final = frozenset({"runs", "annotations", "baselines"})
# By the digest of their content, which only those learn who see a run that names it.
_BY_CONTENT: Final = frozenset({"blobs", "recordings"})


class ProjectStore(ObjectStore):
    """A store as a project sees it; all else does not exist in it."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._suites: frozenset[NameKey] = frozenset()

    def show_suites(self, names: Collection[str]) -> None:
        """Show the suites of these names, and no others from now on."""
        self._suites = frozenset(map(suite_key, names))

    @property
    def url(self) -> str:
        """What messages name instead of the store's address, which is not the project's to know."""
        return "this service"

    @property
    def is_remote(self) -> bool:
        """What the store itself says."""
        return self._store.is_remote

    def get(self, key: str) -> StoredObject:
        """Return the object; raise `ObjectNotFoundError` for one of another project."""
        if not self._is_readable(key):
            raise ObjectNotFoundError(f"{key} does not exist")
        return self._store.get(key)

    def exists(self, key: str) -> bool:
        """Whether there is such an object of this project."""
        return self._is_readable(key) and self._store.exists(key)

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        """Write an object of an own suite; raise `StoreError` for any other."""
        return self._store.put(self._own(key), data)

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        """Write an object of an own suite, or by its content, unless it exists."""
        if key.partition("/")[0] not in _BY_CONTENT:
            self._own(key)
        return self._store.put_if_absent(key, data)

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace an object of an own suite if its ETag is still `etag`."""
        return self._store.compare_and_swap(self._own(key), data, etag)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects of own suites; those of one suite are listed alone."""
        if self._is_own(prefix):
            yield from self._store.list(prefix)
            return
        root = prefix.partition("/")[0]
        if root in _OF_SUITES and prefix == f"{root}/":
            for suite in sorted(self._suites):
                yield from self._store.list(f"{prefix}{suite}/")

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Yield the folders of own suites; below `runs/` these suites' keys."""
        if self._is_own(prefix):
            yield from self._store.list_folders(prefix)
        elif prefix.removesuffix("/") in _OF_SUITES:
            yield from (name for name in self._store.list_folders(prefix) if name in self._suites)

    def delete(self, key: str) -> None:
        """Remove an object of an own suite; raise `StoreError` for any other."""
        self._store.delete(self._own(key))

    def presign(self, key: str, *, expires_s: int = 3600) -> str:  # noqa: ARG002
        """Refuse: an address of the store would outlive the token that it was made for."""
        raise StoreError(f"{key} is read through this service only")

    def local_path(self, key: str) -> Path | None:
        """Return the file of a readable object; None for any other."""
        return self._store.local_path(key) if self._is_readable(key) else None

    def probe_conditional_writes(self) -> bool:
        """Say what the store itself does."""
        return self._store.probe_conditional_writes()

    def _is_own(self, key: str) -> bool:
        """Whether a key or prefix stands in the folder of an own suite."""
        root, _, rest = key.partition("/")
        suite, separator, _ = rest.partition("/")
        return root in _OF_SUITES and bool(separator) and suite in self._suites

    def _is_readable(self, key: str) -> bool:
        return self._is_own(key) or key.partition("/")[0] in _BY_CONTENT

    def _own(self, key: str) -> str:
        if not self._is_own(key):
            raise StoreError(f"{key} is not of this project")
        return key
