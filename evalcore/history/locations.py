"""Where the tables of the history stand in a store, and how deltalake reaches them."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from evalcore.errors import StoreError, UsageError
from evalcore.storage.store import ObjectStore

HISTORY_PREFIX: Final = "history/"
_LOG: Final = "_delta_log"
# A folder `suite=…` may have 255 bytes in a local file system.
_MAX_PARTITION_BYTES: Final = 240
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
_DIGEST_DIGITS: Final = 16
# Characters in the name of a folder that deltalake 1.6 takes for another path, or panics at.
_UNREADABLE: Final = frozenset("%[]|^\\")


class TableLocation(NamedTuple):
    """A table's address for deltalake, with what reaches it there."""

    uri: str
    storage_options: dict[str, str] | None


def table_prefix(table: str) -> str:
    """Return what the keys of a table's objects start with."""
    return f"{HISTORY_PREFIX}{table}/"


def log_prefix(table: str) -> str:
    """Return what the keys of a table's log start with."""
    return f"{table_prefix(table)}{_LOG}/"


def table_location(store: ObjectStore, table: str) -> TableLocation:
    """Return where a table stands; nothing is read."""
    prefix = table_prefix(table).rstrip("/")
    if store.url.startswith("file:"):
        folder = unquote(urlsplit(store.url).path)
        if odd := sorted(set(folder) & _UNREADABLE):
            raise UsageError(
                f"{folder}: the history cannot stand in a folder whose name has {odd[0]!r} "
                "(deltalake does not read it): move the store"
            )
        return TableLocation(f"{store.url.rstrip('/')}/{prefix}", None)
    from evalcore.storage.s3 import S3Store

    if not isinstance(store, S3Store):
        raise StoreError(f"{store.url} is no store that can hold a history")
    bucket, _, folder = store.url.removeprefix("s3://").partition("/")
    key = quote(f"{folder}/{prefix}" if folder else prefix)
    return TableLocation(f"s3://{bucket}/{key}", store.delta_options())


def partition_suite(name: str) -> str:
    """Return a suite's name as the tables hold it: the name itself, unless it is too long.

    A name whose folder a file system could not hold is cut and ends in `~` and 16 hex digits of
    its SHA-256.
    """
    if name != _NULL_PARTITION and len(quote(name, safe="")) <= _MAX_PARTITION_BYTES:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
    cut = name
    while len(quote(cut, safe="")) > _MAX_PARTITION_BYTES - _DIGEST_DIGITS - len("%7E"):
        cut = cut[:-1]
    return f"{cut}~{digest}"
