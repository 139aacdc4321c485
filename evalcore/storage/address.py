"""From a store's address to the store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from evalcore.errors import StoreError, UsageError
from evalcore.storage.local import LocalStore
from evalcore.storage.store import ObjectStore, check_prefix

if TYPE_CHECKING:
    from evalcore.storage.s3 import S3Settings

_FORMS = "a store is a folder (.evalcore, /data/evals, file:///data/evals) or s3://bucket/prefix"


def open_store(address: str, *, s3: S3Settings | None = None) -> ObjectStore:
    """Return the store at `address`: a folder's path, a `file://` URL, or `s3://bucket/prefix`.

    Nothing is created or asked of a server yet. `s3` defaults to what the environment says
    (`S3Settings.from_environment`). An address of another form raises `UsageError`.
    """
    place = _parsed(address)
    if isinstance(place, Path):
        if place.exists() and not place.is_dir():
            raise UsageError(f"{place} is a file: {_FORMS}")
        return LocalStore(place)
    from evalcore.storage.s3 import S3Settings, S3Store

    return S3Store(*place, s3 or S3Settings.from_environment(os.environ))


def is_allowed_store(address: str, allowed: Iterable[str]) -> bool:
    """Whether a store's address is one of those allowed, or lies below one.

    Folders are compared as the file system resolves them, `s3://` addresses part by part.
    """
    where = _parts(address)
    return bool(where) and any(base and where[: len(base)] == base for base in map(_parts, allowed))


def folder_of_store(address: str) -> Path | None:
    """Return the folder that a store's address names, resolved; None for any other address."""
    with suppress(UsageError):
        place = _parsed(address)
        return place.resolve() if isinstance(place, Path) else None
    return None


def _parts(address: str) -> tuple[str, ...]:
    """Return kind, bucket and the parts of the path; () for what is no plain address."""
    with suppress(UsageError):
        place = _parsed(address)
        if isinstance(place, Path):
            return ("file", *place.resolve().parts)
        bucket, prefix = place
        if re.search(r"[\\?#@%\s]|//", f"{bucket}/{prefix}") is None:
            return ("s3", bucket, *filter(None, prefix.split("/")))
    return ()


def _parsed(address: str) -> Path | tuple[str, str]:
    """Return the folder, or the bucket and the prefix, of an address; raise `UsageError`."""
    scheme, separator, rest = address.partition("://")
    if not address.strip() or "\0" in address:
        raise UsageError(f"{address!r} is no address of a store: {_FORMS}")
    if not separator:
        if address.startswith(("s3:", "file:")):
            raise UsageError(f"{address!r}: two slashes are missing after the colon; {_FORMS}")
        return Path(address).expanduser()
    if scheme.lower() == "file":
        url = urlsplit(address)
        path = unquote(url.path)
        if url.netloc not in {"", "localhost"} or not path.startswith("/") or url.query:
            raise UsageError(f"{address!r} names no folder of this machine: write file:///folder")
        return Path(path)
    if scheme.lower() != "s3":
        # Not the whole address: it may hold a password.
        raise UsageError(f"{scheme}:// is no kind of store: {_FORMS}")
    bucket, _, prefix = rest.partition("/")
    if "@" in bucket:
        raise UsageError(
            "credentials do not belong into a store's address: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    try:
        check_prefix(prefix)
    except StoreError as error:
        raise UsageError(f"{address!r} is no address of a store ({error}): {_FORMS}") from None
    if not bucket or any(character in rest for character in "?#"):
        raise UsageError(f"{address!r} is no address of a store: {_FORMS}")
    return bucket, prefix
