"""What the project asks of an object store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeVar

from evalcore.errors import ObjectNotFoundError, RunConflictError, StoreError

if TYPE_CHECKING:
    from concurrent.futures import Future


MAX_KEY_BYTES = 1024  # of UTF-8; S3 has no longer keys
SWAP_ATTEMPTS: Final = 20


class StoredObject(NamedTuple):
    """An object's bytes and the ETag that names exactly this content."""

    data: bytes
    etag: str


class ObjectInfo(NamedTuple):
    """One row of a listing. `size` in bytes, `modified_at` aware and in UTC."""

    key: str
    size: int
    modified_at: datetime


class ObjectStore(Protocol):
    """Objects under keys. Safe to use from several threads and processes at once.

    Keys are `/`-separated, relative, without empty, `.` or `..` parts (`check_key`); no key is
    also a folder of another. A missing object raises `ObjectNotFoundError`, every other failure
    `StoreError` with the key in its message. A reader sees an object whole or not at all.

    ETags come without quotes and are compared for equality only; where two stores hold the same
    bytes, their ETags may differ.
    """

    @property
    def url(self) -> str:
        """The address that `open_store` turns into this store again (no secrets in it).

        What the environment gives (an S3 endpoint, a region, credentials) is not part of it.
        """

    @property
    def is_remote(self) -> bool:
        """Whether each request takes a network's time: several at once are worth their threads."""

    def get(self, key: str) -> StoredObject:
        """Return the object at `key`."""

    def exists(self, key: str) -> bool:
        """Whether there is an object at `key`; nothing of it is read."""

    def put(self, key: str, data: bytes | Iterable[bytes]) -> str:
        """Write the object, replacing any; return its ETag.

        Of chunks it is their concatenation; what making them raises leaves the object as it was.
        """

    def put_if_absent(self, key: str, data: bytes | Path) -> str | None:
        """Write the object (bytes, or a file's content) unless one exists; None if one does.

        Of several callers at once exactly one gets an ETag. A file given by its path may be
        linked instead of copied: it must not be changed afterwards, only deleted.
        """

    def compare_and_swap(self, key: str, data: bytes, etag: str) -> str | None:
        """Replace the object if its ETag is still `etag`; None if it is not (or it is gone)."""

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys start with `prefix`, in byte order of their keys.

        The prefix need not end at a `/`. Objects that come or go meanwhile may or may not appear.
        """

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Yield the names of the folders directly below `prefix` (empty, or ending in `/`), in
        byte order: `runs/` gives the suites' keys, at the cost of their number, not of the
        objects'. A folder whose objects are all deleted may still appear.
        """

    def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""

    def presign(self, key: str, *, expires_s: int = 3600) -> str:
        """Return a URL under which the object can be read for a while (`file://` locally)."""

    def local_path(self, key: str) -> Path | None:
        """Return the file that holds the object, or None if this store has no files."""

    def probe_conditional_writes(self) -> bool:
        """Say whether `put_if_absent` and `compare_and_swap` keep their promises here.

        Some S3-compatible servers ignore the conditions; work must not be shared through them.
        """


def swap(
    store: ObjectStore,
    key: str,
    change: Callable[[bytes | None], bytes | None],
    *,
    seen: StoredObject | Literal["unread"] | None = "unread",
    label: str = "",
) -> StoredObject | None:
    """Change an object by compare-and-swap; return what stands there now, None if nothing does.

    `change` gets the object's bytes, None if there is none, and returns the new bytes, or None
    to leave the object as it is. It is called again after each lost race; what it raises, `swap`
    raises. The first attempt is made on `seen` (None: the object is expected not to exist), if
    that is given, without a read. Raises `RunConflictError` with the label (else the key) after
    `SWAP_ATTEMPTS` lost races, and `StoreError` if the store fails.
    """
    for _ in range(SWAP_ATTEMPTS):
        stored = _get_or_none(store, key) if isinstance(seen, str) else seen
        data = change(None if stored is None else stored.data)
        if data is None:
            return stored
        if stored is None:
            etag = store.put_if_absent(key, data)
        else:
            etag = store.compare_and_swap(key, data, stored.etag)
        if etag is not None:
            return StoredObject(data, etag)
        seen = "unread"
    raise RunConflictError(f"{label or key} is changed all the time")


def _get_or_none(store: ObjectStore, key: str) -> StoredObject | None:
    try:
        return store.get(key)
    except ObjectNotFoundError:
        return None


def check_key(key: str) -> None:
    """Raise `StoreError` unless `key` can name an object in every store."""
    _check_text(key)
    if any(part in {"", ".", ".."} for part in key.split("/")):
        raise StoreError(
            f"{key!r} cannot be a key: keys are relative paths such as 'runs/a/manifest.json', "
            "without empty, '.' or '..' parts"
        )


def check_prefix(prefix: str) -> None:
    """Raise `StoreError` unless `prefix` can begin a key; the empty prefix can."""
    if prefix:
        check_key(prefix.removesuffix("/") or prefix)


def check_folder(prefix: str) -> None:
    """Raise `StoreError` unless `prefix` is empty or a key's beginning that ends in `/`."""
    check_prefix(prefix)
    if prefix and not prefix.endswith("/"):
        raise StoreError(f"{prefix!r} is no folder of keys: it must end in '/'")


def _check_text(key: str) -> None:
    try:
        size = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        raise StoreError(f"{key!r} cannot be a key: it is not valid Unicode text") from None
    if size > MAX_KEY_BYTES:
        raise StoreError(
            f"{key[:80]!r}… cannot be a key: {size} bytes, and {MAX_KEY_BYTES} are the most"
        )
    # Some S3 servers take a backslash for a slash.
    if any(ord(character) < 32 or character in "\\\x7f" for character in key):
        raise StoreError(f"{key!r} cannot be a key: it has a control character or a backslash")


T = TypeVar("T")
A = TypeVar("A")

_AT_ONCE = 16  # a client keeps 32 connections
_KINDS_AT_ONCE = 8


@contextmanager
def at_once(store: ObjectStore) -> Iterator[Callable[[Callable[[], T]], Callable[[], T]]]:
    """Give what starts requests that do not need each other's answers, and returns what waits.

    Of a remote store they are under way at the same time; in a folder each is made when its answer
    is asked for. All have ended when the context ends.
    """
    if not store.is_remote:
        yield lambda request: request
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_KINDS_AT_ONCE, thread_name_prefix="request") as threads:
        yield lambda request: threads.submit(request).result


def transfer(store: ObjectStore, request: Callable[[A], T], arguments: Iterable[A]) -> Iterator[T]:
    """Yield what the request gives for each argument, in order.

    Of a remote store several are requested at once. The arguments are taken as requests end, so
    that a long iterable is never in memory as a whole. The first failure ends it.
    """
    if not store.is_remote:
        yield from map(request, arguments)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="transfer") as threads:
        waiting: deque[Future[T]] = deque()
        try:
            for argument in arguments:
                if len(waiting) == 2 * _AT_ONCE:
                    yield waiting.popleft().result()
                waiting.append(threads.submit(request, argument))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
