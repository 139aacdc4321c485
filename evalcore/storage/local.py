"""An object store in a folder.

Objects are plain files under their keys. A hidden folder beside them holds unfinished writes and
lock files; it is no part of the keys. Every write is finished in that folder and then appears by
one rename under the key's lock: after a crash, a full disk or a power cut an object is old, new or
missing, and never in between. (After a power cut the last writes may be missing.)

The folder must lie in one file system with POSIX locks.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, cast
from uuid import uuid4

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.storage.store import (
    ObjectInfo,
    StoredObject,
    check_folder,
    check_key,
    check_prefix,
)

HIDDEN_FOLDER = ".store"
LOCK_WAIT_S: Final = 30.0
"""How long a lock is waited for. It is held for a rename only, unless its process is stopped."""
_LOCK_POLL_S: Final = 0.002
_LEFTOVER_AGE_S = 24 * 3600
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStore:
    """An `ObjectStore` below the folder `root`, which the first write creates.

    The ETag is the BLAKE2b hash of the content. A write that waits for a lock longer than
    `lock_wait_s` seconds raises `StoreError`.
    """

    def __init__(self, root: Path, *, lock_wait_s: float = LOCK_WAIT_S) -> None:
        self._lock_wait_s = lock_wait_s
        self._root = root.absolute()
        self._hidden = self._root / HIDDEN_FOLDER
        self._swept = False

    @property
    def url(self) -> str:
        """The folder as a `file://` URL."""
        return self._root.as_uri()

    @property
    def is_remote(self) -> bool:
        """False: files."""
        return False

    def get(self, key: str) -> StoredObject:
        """Return the object at `key`."""
        path = self._path(key)
        with self._explained(key, "read"):
            data = path.read_bytes()
        return StoredObject(data, _hash(data))

    def exists(self, key: str) -> bool:
        """Whether there is an object at `key`."""
        path = self._path(key)
        with self._explained(key, "read"):
            return path.is_file()

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        """Write the object, replacing any; return its ETag."""
        return cast("str", self._write(key, data, lambda _: True))

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        """Write the object unless one exists."""
        path = self._path(key)
        with self._explained(key, "write"):
            if _is_taken(path):
                return None
        if isinstance(data, Path) and not data.is_file():
            raise StoreError(f"{key}: there is no file {data} to store")
        return self._write(key, data, lambda path: not _is_taken(path))

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object if its ETag is still `etag`; None if it is not (or it is gone)."""
        return self._write(key, data, lambda path: _content_etag(path) == etag)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, in byte order of their keys."""
        check_prefix(prefix)
        return self._walk(prefix.rpartition("/")[0], prefix)

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Yield the names of the folders directly below `prefix`, in byte order."""
        check_folder(prefix)
        yield from sorted(
            entry.name for entry in self._entries(prefix.removesuffix("/")) if entry.is_dir()
        )

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        path = self._path(key)
        with self._explained(key, "delete"), suppress(*_NOT_THERE):
            path.lstat()  # a store that is only read gets no lock files
            with self._locked(key):
                path.unlink()

    def presign(self, key: str, *, expires_s: int = 3600) -> str:  # noqa: ARG002 - protocol
        """Return the file's `file://` URL, which does not expire."""
        return self.local_path(key).as_uri()

    def local_path(self, key: str) -> Path:
        """Return the file that holds the object."""
        path = self._path(key)
        if not path.is_file():
            raise self._not_found(key)
        return path

    def probe_conditional_writes(self) -> bool:
        """Say yes: links and locks are exclusive."""
        return True

    def _path(self, key: str) -> Path:
        check_key(key)
        if key.split("/", 1)[0] == HIDDEN_FOLDER:
            raise StoreError(f"{key!r} cannot be a key: {HIDDEN_FOLDER!r} belongs to the store")
        return self._root / key

    def _not_found(self, key: str) -> ObjectNotFoundError:
        return ObjectNotFoundError(f"{key}: no such object in {self._root}")

    @contextmanager
    def _explained(self, key: str, action: str) -> Iterator[None]:
        """Turn what the operating system says into a `StoreError` that names the key."""
        try:
            yield
        except _NOT_THERE as error:
            if action == "read":
                raise self._not_found(key) from None
            raise self._failed(key, action, error) from error
        except OSError as error:
            raise self._failed(key, action, error) from error

    def _failed(self, key: str, action: str, error: OSError) -> StoreError:
        reason = error.strerror or str(error)
        return StoreError(f"{key}: cannot {action} in {self._root}: {reason}")

    def _write(
        self, key: str, data: bytes | Iterable[bytes] | Path, is_due: Callable[[Path], bool]
    ) -> str | None:
        """Write the object if that `is_due` under the key's lock; return its ETag, else None."""
        path, folder = self._path(key), self._hidden / "unfinished"
        with self._explained(key, "write"):
            _make_folder(folder)
            if not self._swept:
                _remove_leftovers(folder)
                self._swept = True
            temporary = folder / uuid4().hex
            try:
                etag = _write(temporary, data)
                with self._locked(key):
                    if not is_due(path):
                        return None
                    _make_folder(path.parent)
                    temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        return etag

    @contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Hold the key's lock, which other keys may share; a crash releases it."""
        from filelock import FileLock, Timeout

        folder = self._hidden / "locks"
        _make_folder(folder)
        path = folder / hashlib.blake2b(key.encode(), digest_size=1).hexdigest()
        lock = FileLock(path, self._lock_wait_s, poll_interval=_LOCK_POLL_S, fallback_to_soft=False)
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(
                f"{key}: cannot write in {self._root}: another process has held its lock {path} "
                f"for {self._lock_wait_s:g} s (`fuser {path}` names it); nothing was written"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def _entries(self, folder: str) -> tuple[os.DirEntry[str], ...]:
        """Return a folder's entries in the byte order of the keys below them."""
        if folder.split("/", 1)[0] == HIDDEN_FOLDER:
            return ()
        try:
            with os.scandir(self._root / folder) as scan:
                entries = [entry for entry in scan if folder or entry.name != HIDDEN_FOLDER]
            # A folder's keys go on with '/', which sorts after '-' and '.'.
            entries.sort(key=lambda e: f"{e.name}/" if e.is_dir() else e.name)
        except _NOT_THERE:
            return ()
        except OSError as error:
            raise self._failed(folder or ".", "list", error) from error
        return tuple(entries)

    def _walk(self, folder: str, prefix: str) -> Iterator[ObjectInfo]:
        for entry in self._entries(folder):
            key = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir():
                if f"{key}/".startswith(prefix) or prefix.startswith(f"{key}/"):
                    yield from self._walk(key, prefix)
            elif key.startswith(prefix):
                info = self._info(key, Path(entry.path))
                if info is not None:
                    yield info

    def _info(self, key: str, path: Path) -> ObjectInfo | None:
        try:
            status = path.stat()
        except _NOT_THERE:
            return None  # deleted since the folder was read
        except OSError as error:
            raise self._failed(key, "list", error) from error
        modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
        return ObjectInfo(key, status.st_size, modified_at)


_hashing = partial(hashlib.blake2b, digest_size=16)


def _hash(data: bytes) -> str:
    return _hashing(data).hexdigest()


def _content_etag(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, _hashing).hexdigest()
    except _NOT_THERE:
        return None


def _write(path: Path, data: bytes | Iterable[bytes] | Path) -> str:
    """Create the file and hand it to the disk; return its ETag."""
    digest = _hashing()
    with path.open("xb") as file:
        for chunk in _chunks(data):
            file.write(chunk)
            digest.update(chunk)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _chunks(data: bytes | Iterable[bytes] | Path) -> Iterable[bytes]:
    if isinstance(data, bytes):
        yield data
    elif isinstance(data, Path):
        with data.open("rb") as source:
            while chunk := source.read(1024 * 1024):
                yield chunk
    else:
        yield from data


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        # Not to be mistaken for "the object exists".
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is a file") from None


def _is_taken(path: Path) -> bool:
    """Say whether an object stands there; raise `IsADirectoryError` for a folder."""
    try:
        mode = path.lstat().st_mode
    except _NOT_THERE:
        return False
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, f"{path} is a folder of other objects")
    return True


def _remove_leftovers(folder: Path) -> None:
    """Remove what writers that crashed long ago left unfinished."""
    oldest = time.time() - _LEFTOVER_AGE_S
    for entry in os.scandir(folder):
        with suppress(OSError):  # another process may be sweeping too
            if entry.stat().st_mtime < oldest:
                Path(entry.path).unlink()
