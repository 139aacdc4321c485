"""An object's bytes into a file, piece by piece: none is ever in memory as a whole."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from evalcore.errors import ObjectNotFoundError, StoreError
from evalcore.network import proxy_for, tls_context
from evalcore.storage.object_store import ObjectStore

_PIECE_BYTES = 1024 * 1024
_ATTEMPTS = 6
_FIRST_WAIT_S = 0.2
_TIMEOUT_S = 60.0
_REFUSED = frozenset({400, 401, 403})


class _CutError(Exception):
    """The connection ended before the object did, or the server could not answer."""


def download(store: ObjectStore, key: str, path: Path) -> None:
    """Write the object at `key` into the file `path`; a cut connection is resumed where it was.

    Raises `ObjectNotFoundError`, else `StoreError`; never names the signed address.
    """
    local = store.local_path(key)
    if local is not None:
        import shutil

        shutil.copyfile(local, path)
        return
    etag: str | None = None
    with path.open("wb") as file:
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(_FIRST_WAIT_S * 2 ** (attempt - 1))
            try:
                done, etag = _go_on(store, key, file, etag)
                if done:
                    return
            except _CutError as error:
                reason = str(error)
            except OSError as error:
                reason = str(getattr(error, "reason", error))
            except http.client.HTTPException as error:
                reason = type(error).__name__
    raise StoreError(f"{key}: cannot be read from {store.url} ({_ATTEMPTS} attempts): {reason}")


def _go_on(
    store: ObjectStore, key: str, file: BinaryIO, etag: str | None
) -> tuple[bool, str | None]:
    """Append what is missing; return whether all is there, and what the object is."""
    offset = file.tell()
    request = urllib.request.Request(store.presign(key))  # noqa: S310  (an address of the store's)
    if offset and etag:
        request.add_header("Range", f"bytes={offset}-")
        request.add_header("If-Match", etag)
    try:
        with _opener(request.full_url).open(request, timeout=_TIMEOUT_S) as answer:
            if answer.status != 206 and offset:
                file.seek(0)
                file.truncate()
            missing = int(answer.headers["Content-Length"])
            etag = answer.headers.get("ETag")
            while piece := answer.read(_PIECE_BYTES):
                file.write(piece)
                missing -= len(piece)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise ObjectNotFoundError(f"no object {key} in {store.url}") from None
        if error.code in _REFUSED:
            message = f"{key}: {store.url} refuses to give it (HTTP {error.code})"
            raise StoreError(f"{message}; check the credentials and the bucket's policy") from None
        if error.code == 412:
            raise StoreError(f"{key}: was replaced in {store.url} while it was read") from None
        raise _CutError(f"HTTP {error.code}") from None
    if missing > 0:
        # What came is kept, and the next request goes on after it.
        return False, etag
    return True, etag


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Return what opens an address by the environment's proxies and certificates."""
    import ssl

    proxy = proxy_for(url)
    proxies = urllib.request.ProxyHandler({urlsplit(url).scheme: proxy.url} if proxy else {})
    bundle = os.environ.get("AWS_CA_BUNDLE")
    context = ssl.create_default_context(cafile=bundle) if bundle else tls_context()
    return urllib.request.build_opener(proxies, urllib.request.HTTPSHandler(context=context))
