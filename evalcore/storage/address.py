"""From a store's address to the store."""

from __future__ import annotations

import os
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
    scheme, separator, rest = address.partition("://")
    if not address.strip() or "\0" in address:
        raise UsageError(f"{address!r} is no address of a store: {_FORMS}")
    if not separator:
        if address.startswith(("s3:", "file:")):
            raise UsageError(f"{address!r}: two slashes are missing after the colon; {_FORMS}")
        return _open_folder(Path(address).expanduser())
    match scheme.lower():
        case "file":
            return _open_folder(_file_url_path(address))
        case "s3":
            return _open_s3(address, rest, s3)
        case _:
            # Not the whole address: it may hold a password.
            raise UsageError(f"{scheme}:// is no kind of store: {_FORMS}")


def _open_folder(path: Path) -> LocalStore:
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file: {_FORMS}")
    return LocalStore(path)


def _file_url_path(address: str) -> Path:
    url = urlsplit(address)
    if url.netloc not in {"", "localhost"} or not url.path.startswith("/"):
        raise UsageError(f"{address!r} names no folder of this machine: write file:///folder")
    return Path(unquote(url.path))


def _open_s3(address: str, rest: str, settings: S3Settings | None) -> ObjectStore:
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
    from evalcore.storage.s3 import S3Settings, S3Store

    return S3Store(bucket, prefix, settings or S3Settings.from_environment(os.environ))
